"""Killed while it writes, and resumed: the same bits as if nothing had happened. Other numbers of nodes, other checkpoints."""

import logging
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_model
from torch import nn

import p2p
from p2p.config import TEST
from p2p.errors import ConfigError, StateError
from p2p.export import export
from p2p.state.checkpoint import candidates, read
from p2p.state.mass import Mass

SAVER = Path(__file__).with_name("nodes") / "saver.py"
CONFIG = replace(TEST, join=replace(TEST.join, answer=2.0))


def saver(run: Path, *arguments: int) -> list[str]:
    """What the saver prints: in which step its kills left it, if any, and a hash of all its state at the end."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(SAVER), str(run), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_in_the_middle_of_writing_it_goes_on_to_the_last_bit(tmp_path: Path, kills: int) -> None:
    killed, spared = tmp_path / "killed", tmp_path / "spared"
    killed.mkdir()
    spared.mkdir()
    reached, digest = saver(killed, 10, 3, kills)
    shutil.copy(killed / "node-0.key", spared)  # the order of work follows from who one is
    assert saver(spared, int(reached) + 10, 1000) == [digest]
    assert not list(killed.glob("checkpoints/node-0/.tmp-*"))


# --- in this process ---------------------------------------------------------------------------------------------


class Run:
    """Nodes that train a small model, and a run directory for each."""

    def __init__(self, stack: ExitStack, root: Path) -> None:
        self._stack, self._root = stack, root
        self.nodes: list[p2p.Node] = []
        self.models: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []

    def add(self, index: int, resume: Path | None = None, **settings: object) -> p2p.Node:
        torch.manual_seed(100 + index)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        peers = [self.nodes[0].address] if self.nodes else []
        node = p2p.join(model, optimizer, peers=peers, config=CONFIG, resume=resume, **settings)  # type: ignore[arg-type]
        self._stack.enter_context(node)
        self.nodes.append(node)
        self.models.append(model)
        self.optimizers.append(optimizer)
        return node

    def folder(self, index: int) -> Path:
        return self._root / "checkpoints" / f"node-{index}"

    def step(self, index: int) -> None:
        self.optimizers[index].zero_grad()
        (self.models[index](torch.randn(8, 4)) - 1).square().mean().backward()
        self.optimizers[index].step()

    def train(self, steps: int) -> None:
        def loop(index: int) -> None:
            for _ in range(steps):
                self.step(index)

        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(loop, range(len(self.nodes))))

    def loss(self, index: int) -> float:
        """Leaves the buffers alone."""
        x = torch.randn(64, 4, generator=torch.Generator().manual_seed(9))
        with torch.no_grad():
            return float((self.models[index].eval()(x) - 1).square().mean())


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_run_goes_on_at_another_number_of_nodes(tmp_path: Path, nodes: int) -> None:
    with ExitStack() as stack:
        first = Run(stack, tmp_path)
        for index in range(2):
            first.add(index, wait_for=2 if index else 1).checkpoint(10, path=first.folder(index))
        first.train(39)
        for node in first.nodes:
            node._saving.finish()  # else a write may still be under way, and the next one late
        first.train(1)
        before = first.loss(0)
    with ExitStack() as stack:
        second = Run(stack, tmp_path)
        for index in range(nodes):
            node = second.add(index, tmp_path)
            assert node.step_count >= 40
        assert second.loss(nodes - 1) == pytest.approx(before, rel=0.5)
        second.train(5)
        assert all(node.last_step.step >= 45 for node in second.nodes)


def descend(
    root: Path, algorithm: str, minima: list[float], steps: int, resume: Path | None = None, momentum: float = 0.0
) -> list[p2p.Node]:
    """Nodes that are drawn each to a minimum of its own; all their functions have one curvature, so the mean's is the mean.

    All wait for all: a push that a busy machine delays past its deadline would move the mean for a while.
    """
    algorithm += ",deadline=off" if ":" in algorithm else ":deadline=off"
    with ExitStack() as stack:
        nodes: list[p2p.Node] = []
        models = [nn.ParameterList([torch.zeros(3)]) for _ in minima]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum) for model in models]
        for model, optimizer in zip(models, optimizers, strict=True):
            settings = {"algorithm": algorithm, "topology": "complete", "wait_for": len(minima), "resume": resume}
            peers = [nodes[0].address] if nodes else []
            nodes.append(stack.enter_context(p2p.join(model, optimizer, peers=peers, config=CONFIG, **settings)))  # type: ignore[arg-type]

        def train(index: int) -> None:
            nodes[index].checkpoint(steps, path=root / "checkpoints" / f"node-{index}")
            for _ in range(steps):
                models[index][0].grad = models[index][0].detach() - minima[index]
                optimizers[index].step()

        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(train, range(len(nodes))))
        return nodes


def test_the_loss_goes_on_where_a_run_is_resumed_with_fewer_nodes_and_with_more(tmp_path: Path) -> None:
    calm, struck = tmp_path / "calm", tmp_path / "struck"
    descend(calm, "gossip", [4.0, 4.0], 18, momentum=0.5)
    for nodes, resume in ((2, None), (1, struck), (3, struck)):
        descend(struck, "gossip", [4.0] * nodes, 6, resume, momentum=0.5)
    (whole, legs) = (read(candidates(root)[0]) for root in (calm, struck))
    assert whole.step == legs.step == 18
    loss, expected = (float((saved.model["0"] - 4).square().sum()) for saved in (legs, whole))
    assert loss == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("minima", [[-4.0], [-4.0, 4.0, 12.0]])
@pytest.mark.parametrize("algorithm", ["push-sum", "d2", "gradient-tracking", "slowmo:period=4"])
def test_what_an_algorithm_keeps_in_sum_is_whole_at_another_number_of_nodes(
    tmp_path: Path, algorithm: str, minima: list[float]
) -> None:
    descend(tmp_path, algorithm, [-4.0, 4.0], 40)
    nodes = descend(tmp_path, algorithm, minima, 120, tmp_path)
    masses = [sum(s.weights) for node in nodes if isinstance(s := node._task.shards, Mass)]
    if masses:
        assert sum(masses) == pytest.approx(len(minima))  # leavers have handed theirs over
        return
    values = torch.stack([node.model[0].detach() for node in nodes])  # type: ignore[index]
    assert torch.allclose(values.mean(0), torch.full((3,), sum(minima) / len(minima)), atol=0.05), values


def test_nodes_with_different_checkpoints_agree_on_the_newest(tmp_path: Path) -> None:
    for index, steps in ((0, 20), (1, 300)):  # one that is due while another is written is left out
        with ExitStack() as stack:
            alone = Run(stack, tmp_path / str(index))
            alone.add(index).checkpoint(10, path=alone.folder(0))
            alone.train(steps)
    older, newest = (read(candidates(tmp_path / str(index))[0]) for index in range(2))
    assert older.step <= 20 < newest.step
    with ExitStack() as stack:
        both = Run(stack, tmp_path)
        founder = both.add(0, tmp_path / "0", wait_for=2)
        other = both.add(1, tmp_path / "1", wait_for=2)
        assert (founder.step_count, other.step_count) == (older.step, newest.step)
        waiting = threading.Thread(target=founder._ready, args=("training",))
        waiting.start()
        other._ready("training")
        waiting.join()
        assert founder.step_count == newest.step
        for model in both.models:
            assert torch.equal(model[0].weight, newest.model["0.weight"])


def test_a_joiner_of_a_swarm_that_trains_takes_its_state(tmp_path: Path) -> None:
    with ExitStack() as stack:
        old = Run(stack, tmp_path)
        old.add(0).checkpoint(10, path=old.folder(0))
        old.train(50)
    with ExitStack() as stack:
        new = Run(stack, tmp_path)
        new.add(0)
        new.train(5)
        assert new.add(1, tmp_path).step_count == 5


def test_export_is_the_mean_of_the_nodes(tmp_path: Path) -> None:
    with ExitStack() as stack:
        run = Run(stack, tmp_path)
        for index in range(2):
            run.add(index).checkpoint(5, path=run.folder(index))
        run.train(10)
    done = export(tmp_path, tmp_path / "model.safetensors")
    assert {*done.used} == {"node-0", "node-1"}
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    load_model(model, str(tmp_path / "model.safetensors"))
    both = [read(candidates(run.folder(index))[0]).model["0.weight"] for index in range(2)]
    assert torch.allclose(model[0].weight, (both[0] + both[1]) / 2, atol=1e-7)
    export(tmp_path, tmp_path / "one.safetensors", node=1)
    load_model(model, str(tmp_path / "one.safetensors"))
    assert torch.equal(model[0].weight, both[1])


def test_a_node_that_stopped_long_before_is_left_out(tmp_path: Path) -> None:
    for index, steps in ((0, 40), (1, 10)):
        with ExitStack() as stack:
            run = Run(stack, tmp_path)
            run.add(0).checkpoint(5, path=run.folder(index))
            run.train(steps)
    done = export(tmp_path, tmp_path / "model.safetensors")
    assert {*done.used} == {"node-0"}
    assert {*done.left_out} == {"node-1"}


def test_what_cant_be_says_what_to_do(tmp_path: Path) -> None:
    with ExitStack() as stack:
        run = Run(stack, tmp_path)
        with pytest.raises(StateError, match="holds no checkpoint that can be read: give a run directory"):
            run.add(0, tmp_path)
        node = run.add(0)
        with pytest.raises(ConfigError, match=r"checkpoint\(\) needs path="):
            node.checkpoint(10)
        node.checkpoint(1, path=run.folder(0))
        run.train(2)
    with pytest.raises(ConfigError, match="is no directory"):
        export(tmp_path, tmp_path / "nowhere" / "model.safetensors")
    with pytest.raises(StateError, match="holds no checkpoint"):
        export(tmp_path / "nothing", tmp_path / "model.safetensors")


def test_a_disk_that_fails_ends_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("where a folder should be")
    with ExitStack() as stack, caplog.at_level(logging.WARNING, "starlings"):
        run = Run(stack, tmp_path)
        node = run.add(0)
        node.checkpoint(2, path=tmp_path / "file" / "below")
        run.train(6)
        node._saving.finish()
        assert node.last_step.step == 6
        assert node._agent.metrics.snapshot()["checkpoints", "failed"] >= 1
    assert "training goes on" in caplog.text
