"""Several sites: who pays for what crosses between them, and what becomes of that when such a node dies."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from p2p.agent.reception import status_of
from p2p.config import LAN
from p2p.net.physics import Line, Underlay
from p2p.net.transport import Transport
from p2p.sim.compute import Paced
from p2p.sim.faults import Kill
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging

STEP, EVERY, BLOCK = 0.1, 4, 16 * 1024
CYCLE = STEP * EVERY
"""Seconds in which each block crosses once."""
NODES, BLOCKS = 8, 6
DEATH, END = 8.0, 24.0
INFERRED = 45.0
PERIOD = LAN.membership.probe_interval


class Crossings:
    """Bytes that each of some nodes sent to those of them at the other site, looked at every membership period."""

    def __init__(self, swarm: SimulatedSwarm, nodes: range) -> None:
        self._swarm, self._range = swarm, nodes
        self.seen: list[list[int]] = []

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            self.seen.append([self._of(index) for index in self._range])

    def _of(self, index: int) -> int:
        exchange = self._swarm.nodes[index].agent.exchange
        assert exchange is not None
        there = {self._swarm.nodes[other].agent.node for other in self._range if (index + other) % 2}
        return sum(link.sent for partner, link in exchange.links.items() if partner in there)


def two_sites(nodes: range, *faults: Kill) -> list[list[int]]:
    """Four nodes at each site; what each of `nodes` has sent across, after each membership period."""
    swarm = SimulatedSwarm(
        NODES,
        seed=1,
        topology=f"two-level:every={EVERY}",
        workload=Averaging(BLOCKS * BLOCK // 8, seed=1),
        compute=Paced(STEP, 0.2, seed=1),
        underlay=Underlay(1, access=Line(0.0002, bandwidth=1e9), between=Line(0.01, bandwidth=50e6)),
        sites=("eu", "us"),
        faults=faults,
        config=replace(LAN, exchange=replace(LAN.exchange, block_bytes=BLOCK)),
    )
    crossings = Crossings(swarm, nodes)
    swarm.run(seconds=END, beside=crossings.watch)
    return crossings.seen


def test_all_nodes_pay_alike_for_what_crosses() -> None:
    sent = two_sites(range(NODES))[-1]
    assert min(sent) > 0.9 * max(sent)
    assert sum(sent) > BLOCKS * BLOCK * END / CYCLE, "and it does cross"


def test_a_dead_gateway_stops_the_crossing_for_no_membership_period() -> None:
    """What the others send each other goes on, long before the death is known for certain; and each has its turn."""
    seen = two_sites(range(1, NODES), Kill(0, DEATH))
    crossed = [[b - a for a, b in zip(before, after, strict=True)] for before, after in pairwise(seen)]
    before, after = crossed[2 : int(DEATH / PERIOD) - 1], crossed[int(DEATH / PERIOD) - 1 :]
    usual = sum(map(sum, before)) / len(before)
    assert min(map(sum, after)) > usual / 2
    assert all(sum(each) > 0 for each in zip(*after[: int(LAN.membership.suspicion_floor / PERIOD)], strict=True))


class Unlabelled(SimulatedSwarm):
    """Nodes that are at two places, and state no site."""

    def _transport(self, name: str, site: str) -> Transport:
        return self.network.transport(name, ("eu", "us")[int(name[1:]) % 2])


@pytest.mark.parametrize("topology", ["two-level:between=complete,every=4", "adaptive:payload=1e6"])
def test_sites_are_inferred_and_all_build_the_same_of_them(topology: str) -> None:
    swarm = Unlabelled(
        NODES,
        seed=1,
        topology=topology,
        workload=Averaging(BLOCKS * BLOCK // 8, seed=1),
        compute=Paced(STEP, 0.2, seed=1),
        underlay=Underlay(1, access=Line(0.0002, bandwidth=1e9), between=Line(0.02, jitter=0.002, bandwidth=50e6)),
        config=replace(LAN, exchange=replace(LAN.exchange, block_bytes=BLOCK)),
    )
    crossings = Crossings(swarm, range(NODES))
    swarm.run(seconds=INFERRED, beside=crossings.watch)
    agents = [node.agent for node in swarm.nodes]
    charts = [agent.membership.chart for agent in agents if agent.membership is not None]
    assert len({agent._envelope().view for agent in agents}) == 1, "the digest of a view is of its links, too"
    assert all(chart.links == charts[0].links for chart in charts)
    assert [(span.source, span.target, span.links) for span in charts[0].spans] == [
        ("site0", "site0", 12), ("site0", "site1", 16), ("site1", "site0", 16), ("site1", "site1", 12),
    ]  # fmt: skip
    assert [span.figure.round_trip > 0.03 for span in charts[0].spans] == [False, True, True, False]
    crossed = [sum(after) - sum(before) for before, after in pairwise(crossings.seen)]
    assert sum(crossed[-5:]) < 0.7 * sum(crossed[:5]), "once they are known, less crosses"
    assert status_of(agents[0]).spans[1].source == "site0"
    assert all(link.back > 0 for link in status_of(agents[0]).links if link.bandwidth > 0)
