"""Three deliberately broken builds, and the same runs with the real one: each breach is seen."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from p2p.agent.answers import Answers
from p2p.agent.exchange import Swaps
from p2p.agent.pusher import Late, Pusher
from p2p.net.physics import Line, Underlay
from p2p.sim import invariants
from p2p.sim.compute import Paced, Pause
from p2p.sim.faults import Disconnect, Stall
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Drifting

Make = Callable[..., SimulatedSwarm]


def late_by_one_pause(swarm: Make) -> SimulatedSwarm:
    """One node's shards come too late once; it has caught up long before the end."""
    compute = Paced(1.0, pauses=[Pause(2, 10, 0.6)])
    made = swarm(6, 1, algorithm="gossip", topology="ring", compute=compute, underlay=Underlay(1, inside=Line(0.01)))
    made.run(steps=30)
    assert any(report.skipped for node in made.nodes for report in node.reports)
    return made


def answers_lost(swarm: Make) -> SimulatedSwarm:
    """Connections break while swaps are under way on a long line."""
    faults = [Disconnect(node, at=5.0 + 0.23 * turn) for turn, node in enumerate([*range(6)] * 5)]
    compute = Paced(1.0, 0.1, seed=1)
    made = swarm(6, 1, workload=Drifting(16, 1), compute=compute, underlay=Underlay(1, inside=Line(0.1)), faults=faults)
    return made.run(steps=25, quiet=10.0)


def one_stalls(swarm: Make) -> SimulatedSwarm:
    """One node stands still for nine steps of the others."""
    compute, lines = Paced(1.0, 0.06, seed=1), Underlay(1, inside=Line(0.01))
    faults = [Stall(3, at=10.0, for_=9.0)]
    return swarm(8, 1, workload=Drifting(16, 1), compute=compute, underlay=lines, faults=faults).run(steps=30)


def mean_has_moved(made: SimulatedSwarm) -> float:
    started = [made.setting.workload.model(node.index) for node in made.nodes]
    before = torch.stack([torch.nn.utils.parameters_to_vector(model.parameters()) for model in started]).detach().mean(0)
    return float((made.vectors().mean(0) - before).abs().max())


def test_late_shards_count_once(swarm: Make) -> None:
    assert mean_has_moved(late_by_one_pause(swarm)) < 1e-12


def test_late_shards_mixed_twice_move_the_mean(swarm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    once = Pusher._apply_late

    def twice(self: Pusher, late: Late) -> None:
        once(self, late)
        once(self, late)

    monkeypatch.setattr(Pusher, "_apply_late", twice)
    assert mean_has_moved(late_by_one_pause(swarm)) > 1e-6


def test_lost_answers_are_given_again_and_the_ledger_balances(swarm: Make) -> None:
    made = answers_lost(swarm)
    made.schedule.assert_fired()
    assert not made.parted
    invariants.check(made, wait=0.0)


def test_ids_that_are_not_checked_unbalance_the_ledger(swarm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answers, "find", lambda self, partner, exchange: None)
    monkeypatch.setattr(Answers, "first", lambda self, partner, exchange: True)
    with pytest.raises(AssertionError, match="moved by"):
        invariants.check(answers_lost(swarm), wait=0.0)


def test_a_stalled_node_holds_nobody_up(swarm: Make) -> None:
    invariants.exchanges_flow(one_stalls(swarm), steps=3)


def test_overdue_swaps_that_are_never_released_hold_others_up(swarm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Swaps, "_overdue_after", math.inf)
    with pytest.raises(AssertionError, match="exchanged with nobody"):
        invariants.exchanges_flow(one_stalls(swarm), steps=3)
