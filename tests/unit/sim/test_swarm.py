"""The simulated swarm: comings and goings, stops, what it tells, and that nothing that fails is passed over."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from p2p.agent.agent import Agent
from p2p.config import LAN
from p2p.net.physics import Line, Underlay
from p2p.sim import invariants
from p2p.sim.compute import Paced
from p2p.sim.faults import Cut, Join, Kill, Leave, Slow, Stall
from p2p.sim.node import Life
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging, Drifting

COMPUTE = Paced(1.0, 0.05, seed=1)


def lines() -> Underlay:
    return Underlay(1, access=Line(1e-3, 1e-3, 1e8), between=Line(0.02, 0.0, 1e7))


def test_vectors_come_to_their_mean() -> None:
    made = SimulatedSwarm(8, seed=1, compute=COMPUTE, underlay=lines()).run(steps=40, quiet=5.0)
    mean = torch.stack([Averaging(seed=1).model(node).value.detach() for node in range(8)]).mean(0)  # type: ignore[union-attr, operator]
    assert torch.allclose(made.vectors(), mean.expand(8, -1), atol=1e-6)
    assert [node.steps for node in made.nodes] == [40] * 8
    invariants.check(made, wait=0.0)


def test_nodes_join_leave_and_die_and_the_ledger_balances() -> None:
    faults = [Join(at=5.0), Kill(2, at=8.0), Leave(3, at=10.0), Stall(4, at=6.0, for_=3.0), Slow(5, 5.0)]
    made = SimulatedSwarm(6, seed=1, workload=Drifting(8, 1), compute=COMPUTE, underlay=lines(), faults=faults)
    made.run(seconds=20.0, quiet=40.0)
    made.schedule.assert_fired()
    assert [node.life for node in made.nodes] == [Life.DONE, Life.DONE, Life.KILLED, Life.LEFT, Life.DONE, Life.DONE, Life.DONE]
    assert made.nodes[2].steps <= 8
    assert made.nodes[6].steps >= 13
    assert made.nodes[4].process.stopped == 3.0
    assert max(made.nodes[4].seconds) == pytest.approx(4.0, abs=0.3)
    invariants.check(made, wait=0.0)


def test_a_change_that_nobody_made_unbalances_the_ledger() -> None:
    made = SimulatedSwarm(4, seed=1, compute=COMPUTE).run(steps=5, quiet=2.0)
    invariants.check(made, wait=0.0)
    made.nodes[1].shards._copy.piece(made.nodes[1].shards.blocks[0])[3] += 1e-6
    with pytest.raises(AssertionError, match="element 3 moved by 1e-06"):
        invariants.ledger_balanced(made)


def test_views_that_differ_are_seen() -> None:
    made = SimulatedSwarm(4, seed=1, compute=COMPUTE).run(steps=5, quiet=2.0)
    view = made.nodes[1].agent.view
    made.nodes[1].agent.view = view.without(made.nodes[2].agent.node)
    with pytest.raises(AssertionError, match=r"n1 does not see \['n2'\]"):
        invariants.views_agree(made)


def test_a_node_that_hangs_is_seen() -> None:
    made = SimulatedSwarm(3, seed=1, compute=COMPUTE).run(steps=5, quiet=2.0)
    made.nodes[2].life = Life.TRAINING
    with pytest.raises(AssertionError, match="n2 hangs in step 6"):
        invariants.all_progress(made, wait=0.0)


def test_a_long_cut_parts_sites_and_they_find_each_other_again() -> None:
    faults = [Cut(("us",), at=5.0, for_=40.0)]
    made = SimulatedSwarm(6, seed=1, compute=COMPUTE, underlay=lines(), sites=["eu", "us"], faults=faults)
    made.run(seconds=50.0, quiet=60.0)
    assert made.parted
    invariants.check(made, wait=0.0)


def test_the_story_of_a_node_is_told_by_name() -> None:
    made = SimulatedSwarm(4, seed=1, compute=COMPUTE, underlay=lines(), faults=[Kill(2, at=3.5)]).run(seconds=30.0)
    story = made.story(2)
    assert "n2 step" in story
    assert "world Kill(node=2, at=3.5)" in made.story("world")
    assert "member node=n2 before=suspect after=dead" in story
    assert " n3 step seconds" not in "\n".join(line for line in story.splitlines() if "n2" not in line)
    assert made.story("nobody") == ""


@pytest.mark.parametrize(("algorithm", "sends"), [("async", "asks"), ("gossip", "pushes to"), ("push-sum", "pushes to")])
def test_the_story_of_a_block_is_told(algorithm: str, sends: str) -> None:
    small = replace(LAN, exchange=replace(LAN.exchange, block_bytes=128, message_bytes=128))
    made = SimulatedSwarm(4, seed=1, algorithm=algorithm, compute=COMPUTE, underlay=lines(), config=small).run(steps=4)
    everywhere, here = made.story(block=3).splitlines(), made.story(2, block=3).splitlines()
    assert [line for line in everywhere if " n2 block " in line] == here
    assert {line.split()[1] for line in everywhere} == {"n0", "n1", "n2", "n3"}
    assert any(f" block 3 {sends} n" in line for line in here)
    assert any(re.search(r" block 3 mixes with n\d, at a distance of ", line) for line in here)
    assert [float(line.split()[0]) for line in everywhere] == sorted(float(line.split()[0]) for line in everywhere)
    assert made.story(block=99) == ""


def test_scores_are_sampled() -> None:
    made = SimulatedSwarm(4, seed=1, compute=COMPUTE, sample=5.0).run(seconds=21.0)
    assert [sample.time for sample in made.samples] == [5.0, 10.0, 15.0, 20.0]
    assert made.samples[0].nodes > made.samples[-1].nodes == pytest.approx(made.samples[-1].average, rel=0.01)
    assert made.reached(0.0) == 5.0
    assert made.reached(1e9) is None


def test_what_a_callback_raises_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Agent) -> None:
        raise ZeroDivisionError("in a timer")

    monkeypatch.setattr(Agent, "_tick", broken)
    with pytest.raises(ZeroDivisionError, match="in a timer"):
        SimulatedSwarm(3, seed=1, compute=COMPUTE).run(steps=5)


def test_what_a_trainer_raises_ends_the_run() -> None:
    class Broken(Averaging):
        def gradient(self, node: int, model: torch.nn.Module) -> None:
            raise ZeroDivisionError("in a trainer")

    with pytest.raises(ZeroDivisionError, match="in a trainer"):
        SimulatedSwarm(3, seed=1, compute=COMPUTE, workload=Broken()).run(steps=5)


def test_the_bytes_count_as_if_the_model_were_larger() -> None:
    def finished(scale: float) -> float:
        network = Underlay(1, access=Line(bandwidth=1e6))
        made = SimulatedSwarm(4, seed=1, algorithm="gossip", topology="ring", underlay=network, scale=scale)
        made.run(steps=10)
        return made.nodes[0].seconds[-1]

    assert finished(1.0) == pytest.approx(1.0, abs=0.02)
    assert finished(500.0) == pytest.approx(1.0 + 2 * 64 * 8 * 500 / 1e6, abs=0.1)
