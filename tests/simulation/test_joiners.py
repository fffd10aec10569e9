"""Joiners under virtual time: several donors over thin links, one that dies, one whose line damages what it sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from p2p.config import LAN, Config
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.faults import Corrupt, Fault, Join, Kill
from p2p.sim.node import Life, SimulatedNode
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging

Make = Callable[..., SimulatedSwarm]

SIZE = 1 << 20  # of float64: 8 MiB, in 32 blocks
THIN = Line(latency=0.01, bandwidth=2e6)
FAT = Line(latency=0.001, bandwidth=1e9)
AT = 3.0


def joined(
    swarm: Make, donors: int, *faults: Fault, hosts: dict[str, Line] | None = None
) -> tuple[SimulatedNode, float, SimulatedSwarm]:
    """Three members behind thin lines that take slow steps, and a joiner behind a fat one; seconds until it was in."""
    config: Config = replace(LAN, join=replace(LAN.join, donors=donors))
    lines = {"n0": THIN, "n1": THIN, "n2": THIN, "n3": FAT} | (hosts or {})
    made = swarm(
        3,
        workload=Averaging(size=SIZE),
        compute=Paced(mean=20.0),
        underlay=Underlay(hosts=lines),
        config=config,
        faults=[Join(AT), *faults],
    )
    made.run(seconds=60.0)
    joiner = made.nodes[3]
    (line,) = [line for line in made.journal.lines if " joined " in line and line.split()[1] == "n3"]
    return joiner, float(line.split()[0]) - AT, made


def test_three_donors_over_thin_links_are_faster_than_one(swarm: Make) -> None:
    _, three, _ = joined(swarm, 3)
    _, one, _ = joined(swarm, 1)
    assert 8 * SIZE / 2e6 <= one < 1.2 * 8 * SIZE / 2e6
    assert three < 0.5 * one


def test_a_donor_that_dies_half_way_is_replaced(swarm: Make) -> None:
    joiner, seconds, made = joined(swarm, 3, Kill(0, AT + 1.0))
    assert joiner.life is Life.TRAINING
    assert seconds < 8.0
    made.schedule.assert_fired()


def test_the_only_donor_that_dies_is_replaced_and_the_copy_is_of_one_member(swarm: Make) -> None:
    joiner, _, made = joined(swarm, 1, Kill(0, AT + 1.0), Kill(1, AT + 1.0))
    assert joiner.life is Life.TRAINING
    assert torch.equal(joiner.model.value, made.nodes[2].model.value)


def test_what_a_line_damages_is_fetched_again(swarm: Make) -> None:
    joiner, _, _ = joined(swarm, 3, *(Corrupt(node, 0.3, at=AT + 0.2) for node in range(3)))
    assert joiner.life is Life.TRAINING
    refused = sum(count for (name, _), count in joiner.agent.metrics.snapshot().items() if name == "state_refused")
    assert refused >= 1
