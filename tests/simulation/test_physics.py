"""Stragglers: what they cost each algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import mean

import pytest

from p2p.config import LAN
from p2p.sim.compute import Paced
from p2p.sim.swarm import SimulatedSwarm

Make = Callable[..., SimulatedSwarm]

STEPS = 60
SETTLED = 20  # steps after which the deadline has learned what is normal


def seconds_per_step(node: int, made: SimulatedSwarm) -> float:
    return mean(made.nodes[node].seconds[SETTLED:])


@pytest.mark.parametrize(("deadline", "expected"), [(False, 3.0), (True, 1.0)])
def test_synchronous_gossip_waits_for_a_slow_node_only_without_a_deadline(swarm: Make, deadline: bool, expected: float) -> None:
    config = replace(LAN, deadline=replace(LAN.deadline, enabled=deadline))
    made = swarm(16, 1, algorithm="gossip", topology="ring", compute=Paced(1.0, 0.02, slow={5: 3.0}, seed=1), config=config)
    made.run(seconds=3.5 * STEPS)
    others = [seconds_per_step(node, made) for node in range(16) if node != 5]
    if deadline:
        assert max(others) <= 1.3
        slow = {name for node in made.nodes for report in node.reports[SETTLED:] for name in report.slow}
        assert made.nodes[5].agent.node[:10] in slow
    else:
        assert mean(others) == pytest.approx(expected, rel=0.05)


def test_asynchronous_swaps_leave_the_others_at_their_own_pace(swarm: Make) -> None:
    made = swarm(16, 1, compute=Paced(1.0, 0.02, slow={5: 3.0}, seed=1)).run(seconds=STEPS)
    assert all(seconds_per_step(node, made) == pytest.approx(1.0, rel=0.01) for node in range(16) if node != 5)
    assert mean(made.nodes[5].seconds[1:]) == pytest.approx(3.0, rel=0.02)
    assert made.nodes[5].steps == pytest.approx(STEPS / 3, abs=1)
