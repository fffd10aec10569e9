"""Checkpoints: bit for bit what was trained, whole or not at all, whatever happened to the folder meanwhile."""

import errno
import json
import logging
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import optim
from p2p.errors import ConfigError, StateError
from p2p.state import checkpoint, rng
from p2p.state.checkpoint import Saved, Saver, candidates, newest, prune, read, sweep, write
from p2p.state.method import Method
from p2p.state.training import capture, groups, restore
from p2p.state.tree import fell, grow


class Odd(nn.Module):
    """Ties, dropout, a strided parameter, frozen and transient tensors, 16 bit, empty and 0-d ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.norm, self.drop = nn.BatchNorm1d(6), nn.Dropout(0.3)
        self.strided = nn.Parameter(torch.randn(6, 4).t())
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
        self.bf16 = nn.Parameter(torch.randn(4).bfloat16())
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        x = self.drop(self.norm(self.second(torch.relu(self.first(x))))) * self.scale
        return x @ self.strided.t() + self.bf16.float()


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.002, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
    "lbfgs": lambda p: torch.optim.LBFGS([x for x in p if x.dtype == torch.float32 and x.is_contiguous()], lr=0.1, max_iter=3),
}


class Trainer:
    """A model and what steps it; each one begins somewhere else."""

    def __init__(self, optimizer: str, algorithm: str = "async") -> None:
        self.model = Odd()
        self.optimizer = OPTIMIZERS[optimizer](list(self.model.parameters()))
        self.method = Method(optim.make(algorithm), self.model, [self.optimizer])

    def train(self, steps: int) -> None:
        def closure() -> Tensor:
            self.optimizer.zero_grad()
            x = torch.randn(8, 6) + random.random() + np.random.rand()
            loss = self.model(x).square().mean()
            loss.backward()
            return loss

        for _ in range(steps):
            if isinstance(self.optimizer, torch.optim.LBFGS):
                self.optimizer.step(closure)  # type: ignore[arg-type]
                continue
            closure()
            self.optimizer.step()

    def saved(self, step: int) -> Saved:
        saved = capture(step, self.model, [self.optimizer], self.method, {"epoch": 1})
        tensors = dict(saved.optimizer)
        state = {**saved.state, "groups": groups([self.optimizer], tensors)}
        return Saved(step, saved.model, tensors, state)

    def values(self) -> list[Tensor]:
        tensors = [*self.model.parameters(), *self.model.buffers(), *self.method.local().values()]
        held: dict[str, Tensor] = {}
        fell(self.optimizer.state_dict(), "o", held)
        return [t.detach().clone() for t in [*tensors, *held.values()]]


def identical(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(left, right, strict=True))


def tiny(step: int, value: float = 1.0) -> Saved:
    return Saved(step, {"w": torch.full((3,), value)}, {}, {"step": step})


def keep(root: Path, saved: Saved) -> None:
    """As a node does it."""
    saver = Saver(root, 1, 2, saved.step - 1, lambda *_: None)
    saver.save(saver.copy(saved))
    saver.close()


@pytest.fixture
def generators() -> Iterator[None]:
    before = rng.state()
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    yield
    rng.restore(before)


@pytest.mark.usefixtures("generators")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_goes_on_to_the_last_bit(tmp_path: Path, optimizer: str) -> None:
    first = Trainer(optimizer)
    first.train(4)
    keep(tmp_path, first.saved(4))
    first.train(4)
    second = Trainer(optimizer)
    second.train(1)
    found = newest(tmp_path)
    assert found is not None
    restore(found, second.model, [second.optimizer], second.method)
    rng.restore(found.state["generators"])
    second.train(4)
    assert identical(first.values(), second.values()) and all(value.isfinite().all() for value in first.values())
    assert second.model.second.weight is second.model.first.weight
    assert (found.step, found.state["epoch"], found.state["tied"]) == (4, 1, {"second.weight": "first.weight"})
    assert found.state["transient"] == ["seen"]


@pytest.mark.parametrize("algorithm", ["slowmo", "momentum-tracking", "d2", "gradient-tracking", "pso", "async:ema=0.9"])
def test_the_algorithms_own_state_is_kept_and_its_corrections_begin_anew(tmp_path: Path, algorithm: str) -> None:
    first, second = Trainer("sgd", algorithm), Trainer("sgd", algorithm)
    saved = first.saved(1)
    held = {name: torch.rand_like(tensor) for name, tensor in saved.optimizer.items() if name.startswith("algorithm.")}
    keep(tmp_path, Saved(1, saved.model, {**saved.optimizer, **held}, saved.state))
    restore(read(tmp_path / "step-00000001"), second.model, [second.optimizer], second.method)
    found = {name: tensor for name, tensor in second.saved(1).optimizer.items() if name in held}
    anew = ("anew", *(f"local.{name}." for name in second.method.algorithm.corrects))
    assert held
    for name, tensor in held.items():
        begun = any(name.startswith(f"algorithm.{part}") for part in anew)
        assert torch.equal(found[name], torch.zeros_like(tensor) if begun else tensor), name


def test_nothing_is_replaced_and_a_compiled_model_has_the_same_names(tmp_path: Path) -> None:
    first, second = Trainer("momentum"), Trainer("momentum")
    before = [p.data_ptr() for p in second.model.parameters()]
    compiled = torch.compile(first.model, backend="eager")
    saved = capture(1, compiled, [first.optimizer], first.method, {"groups": groups([first.optimizer], {})})
    keep(tmp_path, saved)
    restore(read(tmp_path / "step-00000001"), second.model, [second.optimizer], second.method)
    assert identical(list(first.model.parameters()), list(second.model.parameters()))
    assert [p.data_ptr() for p in second.model.parameters()] == before
    torch.compiler.reset()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.model.pop("scale"), "scale is not in the checkpoint"),
        (lambda s: s.model.update(more=torch.zeros(1)), "more is in the checkpoint alone"),
        (lambda s: s.model.update(scale=torch.zeros(2)), r"scale is torch.float32 \(2,\) in the checkpoint"),
        (lambda s: s.state.update(kinds=["Adam"]), r"written with \['Adam'\]; here it is \['SGD'\]"),
        (lambda s: s.state.update(optimizers=[]), "the optimizer's state does not fit"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(change: Callable[[Saved], object], said: str) -> None:
    trainer = Trainer("momentum")
    trainer.train(1)
    saved = trainer.saved(1)
    saved = Saved(1, {k: v.clone() + 1 for k, v in saved.model.items()}, saved.optimizer, saved.state)
    change(saved)
    before = trainer.values()
    with pytest.raises(StateError, match=said):
        restore(saved, trainer.model, [trainer.optimizer], trainer.method)
    assert identical(before, trainer.values())


# --- trees -------------------------------------------------------------------------------------------------------

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(TREES)
def test_a_tree_comes_back_as_it_was(tree: object) -> None:
    assert grow(json.loads(json.dumps(fell(tree, "t", {}))), {}) == tree


def test_what_json_cant_hold_is_named() -> None:
    with pytest.raises(StateError, match=r"optimizer\.0\.hook is a function"):
        fell({"hook": lambda: None}, "optimizer.0", {})
    with pytest.raises(StateError, match="has the key"):
        fell({(1, 2): 3}, "o", {})
    for felled in ({"tensor": "gone"}, {"dict": [1]}, {"set": []}, [1], {"list": {}}):
        with pytest.raises(StateError, match="can't be read"):
            grow(felled, {})


# --- folders -----------------------------------------------------------------------------------------------------


def test_the_newest_readable_one_is_taken_and_the_others_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in (5, 20, 100):
        write(tmp_path, tiny(step))
    (tmp_path / ".tmp-00000200-1").mkdir()
    os.truncate(tmp_path / "step-00000100" / "model.safetensors", 20)
    with caplog.at_level(logging.WARNING, "starlings"):
        found = newest(tmp_path)
    assert found is not None
    assert found.step == 20
    assert "step-00000100 is passed over: model.safetensors: 20 bytes; the manifest says" in caplog.text
    sweep(tmp_path)
    prune(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000020", "step-00000100"]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["gone", "flipped"])
def test_any_damage_is_found(tmp_path: Path, name: str, damage: str) -> None:
    path = write(tmp_path, tiny(1)) / name
    if damage == "gone":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert newest(tmp_path) is None


def test_a_run_directory_is_searched_node_by_node(tmp_path: Path) -> None:
    for node, step in ((0, 10), (1, 30), (2, 20)):
        write(tmp_path / "checkpoints" / f"node-{node}", tiny(step))
    found = newest(tmp_path)
    assert found is not None
    assert found.step == 30
    assert [path.name for path in candidates(tmp_path / "checkpoints" / "node-2")] == ["step-00000020"]
    assert candidates(candidates(tmp_path)[0]) == [candidates(tmp_path)[0]]
    assert newest(tmp_path / "nowhere") is None


def test_a_full_disk_leaves_nothing_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[int, str]] = []
    saver = Saver(tmp_path, every=1, keep=2, step=0, outcome=lambda step, seconds, why: told.append((step, why)))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", full)
        saver.save(saver.copy(tiny(1)))
        saver.close()
    assert list(tmp_path.iterdir()) == []
    assert "no checkpoint of step 1" in caplog.text
    assert saver.due(2)
    saver.save(saver.copy(tiny(2)))
    saver.close()
    assert [(step, bool(why)) for step, why in told] == [(1, True), (2, False)]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


def test_training_does_not_wait_and_what_is_written_is_of_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, value = threading.Event(), torch.ones(4)
    forced = checkpoint._force

    def slow(path: Path) -> None:
        assert go_on.wait(20)
        forced(path)

    monkeypatch.setattr(checkpoint, "_force", slow)
    saver = Saver(tmp_path, every=2, keep=2, step=0, outcome=lambda *_: None)
    assert [saver.due(step) for step in (1, 2)] == [False, True]
    saver.save(saver.copy(Saved(2, {"w": value}, {}, {})))
    value.fill_(7)
    assert not saver.due(4)  # the disk is still at step 2
    go_on.set()
    saver.close()
    assert saver.due(5)
    saver.save(saver.copy(Saved(5, {"w": value}, {}, {})))
    saver.close()
    assert [read(path).model["w"].tolist() for path in candidates(tmp_path)] == [[7.0] * 4, [1.0] * 4]
    assert not saver.due(6)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    saver = Saver(tmp_path, every=1, keep=3, step=0, outcome=lambda *_: None)
    for step in range(1, 8):
        saver.save(saver.copy(tiny(step)))
        saver.close()
    assert [path.name[-1] for path in candidates(tmp_path)] == ["7", "6", "5"]


@pytest.mark.parametrize(("every", "keep", "said"), [(0, 2, "every=0"), (1, 1, "keep=1")])
def test_what_cant_be_is_refused(tmp_path: Path, every: int, keep: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Saver(tmp_path, every, keep, 0, lambda *_: None)


def test_a_run_that_begins_anew_does_not_prune_another_runs_work(tmp_path: Path) -> None:
    write(tmp_path, tiny(500))
    with pytest.raises(ConfigError, match="holds a checkpoint of step 500, and this run is at step 0"):
        Saver(tmp_path, 1, 2, 0, lambda *_: None)
    shutil.rmtree(tmp_path / "step-00000500")
