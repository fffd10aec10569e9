"""Overlap: where a round travels for three quarters of a step, a step is hardly longer than its computation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from p2p.config import LAN, ExchangeConfig
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging, Quadratics

STEP = 0.2


def slowdown(algorithm: str) -> float:
    """Mean seconds of a step, over the seconds that it computes, where a push is under way for 0.75 of them."""
    swarm = SimulatedSwarm(
        6,
        topology="ring",
        algorithm=algorithm,
        workload=Quadratics(6),
        compute=Paced(mean=STEP),
        underlay=Underlay(access=Line(latency=0.75 * STEP / 2)),
    ).run(steps=30)
    seconds = [s for node in swarm.nodes for s in node.seconds[5:]]
    return sum(seconds) / len(seconds) / STEP


@pytest.mark.parametrize("algorithm", ["gossip:overlap=yes", "push-sum:overlap=yes", "async", "local:period=10,overlap=yes"])
def test_what_overlaps_costs_no_time(algorithm: str) -> None:
    assert slowdown(algorithm) <= 1.1


@pytest.mark.parametrize(("algorithm", "longest"), [("gossip", 1.8), ("push-sum", 1.8), ("local:period=10", 1.2)])
def test_what_waits_pays_for_the_way(algorithm: str, longest: float) -> None:
    assert 1.05 < slowdown(algorithm) <= longest


def test_overlapped_rounds_all_count() -> None:
    swarm = SimulatedSwarm(
        6,
        topology="ring",
        algorithm="gossip:overlap=yes",
        workload=Quadratics(6),
        compute=Paced(mean=STEP),
        underlay=Underlay(access=Line(latency=0.75 * STEP / 2)),
    ).run(steps=30)
    assert not any(report.skipped for node in swarm.nodes for report in node.reports)
    assert swarm.nodes[0].agent.exchange is not None
    assert swarm.nodes[0].agent.exchange.round >= 28  # counted from 0


def waited(algorithm: str) -> float:
    """Seconds of all steps together, with vectors that take 2.5 steps on a line, whole."""
    work = Averaging(size=1000)
    line = Line(bandwidth=8 * work.size / (2.5 * STEP))
    swarm = SimulatedSwarm(
        4,
        algorithm=algorithm,
        workload=work,
        compute=Paced(mean=STEP),
        underlay=Underlay(access=line),
        config=replace(LAN, exchange=ExchangeConfig(block_bytes=400, message_bytes=800)),
    ).run(steps=30)
    return sum(report.wait for node in swarm.nodes for report in node.reports[10:])


def test_parts_hide_what_a_burst_waits_for() -> None:
    burst = waited("local:period=5")
    assert burst > 4 * 4 * 2 * STEP, "the line is that thin"
    assert waited("dreamddp:period=5") <= 0.2 * burst
    assert waited("layerwise:period=5") == 0.0
