"""Joiners under virtual time: several donors over thin links, one that dies, one whose line damages what it sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from p2p.agent.swapper import Swapper
from p2p.config import KIB, LAN, Config
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.faults import Corrupt, Fault, Join, Kill
from p2p.sim.invariants import ledger_balanced
from p2p.sim.node import Life, SimulatedNode
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging, Drifting

Make = Callable[..., SimulatedSwarm]

SIZE = 1 << 20  # of float64: 8 MiB, in 32 blocks
THIN = Line(latency=0.01, bandwidth=2e6)
FAT = Line(latency=0.001, bandwidth=1e9)
AT = 3.0


def joined(
    swarm: Make, donors: int, *faults: Fault, hosts: dict[str, Line] | None = None
) -> tuple[SimulatedNode, float, SimulatedSwarm]:
    """Three members behind thin lines that take slow steps, and a joiner behind a fat one; seconds until it was in."""
    exchange = replace(LAN.exchange, message_bytes=256 * KIB)
    config: Config = replace(LAN, join=replace(LAN.join, donors=donors), exchange=exchange)
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


def training(swarm: Make, *faults: Fault) -> SimulatedSwarm:
    """Four members that train while others come, over lines that carry the state in about half a second: 2 MiB."""
    line = Line(latency=0.002, bandwidth=5e6)
    made = swarm(
        4,
        workload=Drifting(size=SIZE // 4),
        compute=Paced(mean=0.1, variation=0.1),
        underlay=Underlay(hosts={f"n{i}": line for i in range(6)}),
        config=replace(LAN, exchange=replace(LAN.exchange, block_bytes=32 * KIB, message_bytes=256 * KIB)),
        faults=faults,
    )
    return made.run(seconds=3.0, quiet=1.0)


def test_a_joiner_exchanges_while_it_downloads_and_the_sum_is_kept(swarm: Make) -> None:
    made = training(swarm, Join(1.0), Join(1.2), Kill(5, 1.6))
    joiner, killed = made.nodes[4:]
    (line,) = [line for line in made.journal.lines if " joined " in line]
    exchange = joiner.agent.exchange
    assert isinstance(exchange, Swapper)
    assert killed.life is Life.KILLED and killed.agent.exchange is not None
    assert killed.agent.exchange.round > 0, "it took part before it was in"
    assert abs(int(line.split("step=")[1]) - made.nodes[0].steps) <= 10 * (3.0 - float(line.split()[0])) + 2
    ledger_balanced(made)


def test_within_two_seconds_of_200_steps_each_a_joiner_is_as_near_to_the_mean_as_the_others(swarm: Make) -> None:
    made = swarm(
        4,
        workload=Drifting(size=256, drift=1.0),
        compute=Paced(mean=0.005, variation=0.1),
        underlay=Underlay(hosts={f"n{i}": Line(latency=0.001, bandwidth=1e9) for i in range(5)}),
        faults=[Join(0.5)],
    ).run(seconds=2.5)
    *members, joiner = made.vectors()
    mean = torch.stack(members).mean(0)
    apart = (torch.stack(members) - mean).square().mean().sqrt()
    assert float((joiner - mean).square().mean().sqrt()) < 2 * apart
    assert abs(made.nodes[4].agent.step_count - made.nodes[0].agent.step_count) < 20


def test_what_a_line_damages_is_fetched_again(swarm: Make) -> None:
    joiner, _, _ = joined(swarm, 3, *(Corrupt(node, 0.3, at=AT + 0.2) for node in range(3)))
    assert joiner.life is Life.TRAINING
    refused = sum(count for (name, _), count in joiner.agent.metrics.snapshot().items() if name == "state_refused")
    assert refused >= 1
