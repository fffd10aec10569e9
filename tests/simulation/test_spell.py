"""A link between two sites drops to a tenth for half a minute, and comes back: nobody waits, and all follows soon."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean

from p2p.config import LAN
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.faults import Slow
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Drifting

NODES, STEP, SIZE = 4, 0.1, 32_768
"""Of float64: 256 KiB."""
BEGIN, SPELL, SOON, END = 6.0, 30.0, 3.0, 42.0
LOOK = 0.5


@dataclass(frozen=True)
class Look:
    """The links between the sites, and how far apart the nodes are."""

    time: float
    credits: tuple[int, ...]
    codecs: tuple[str, ...]
    distance: float


class Watch:
    """Looks every LOOK seconds."""

    def __init__(self, swarm: SimulatedSwarm) -> None:
        self._swarm = swarm
        self.looks: list[Look] = []

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            ways = [
                (a.agent.exchange, b.agent.node)
                for a in self._swarm.nodes
                for b in self._swarm.nodes
                if (a.index + b.index) % 2
            ]
            links = [(e, e.links[p], p) for e, p in ways if p in e.links]
            self.looks.append(
                Look(
                    asyncio.get_running_loop().time(),
                    tuple(link.credit for _, link, _ in links),
                    tuple(e.coding.wanted(p).name for e, _, p in links),
                    self._swarm.distance(),
                )
            )


@cache
def spell() -> tuple[SimulatedSwarm, list[Look]]:
    swarm = SimulatedSwarm(
        NODES,
        seed=1,
        topology="complete",
        workload=Drifting(SIZE, 1),
        compute=Paced(STEP, seed=1),
        underlay=Underlay(1, access=Line(0.0005, bandwidth=1e9), between=Line(0.005, bandwidth=40e6)),
        sites=("eu", "us"),
        faults=[Slow(("eu", "us"), 10.0, BEGIN), Slow(("eu", "us"), 1.0, BEGIN + SPELL)],
        config=replace(LAN, exchange=replace(LAN.exchange, codec="auto", block_bytes=16 * 1024)),
    )
    watch = Watch(swarm)
    swarm.run(seconds=END, beside=watch.watch)
    return swarm, watch.looks


def between(begin: float, end: float) -> list[Look]:
    return [look for look in spell()[1] if begin <= look.time < end]


def credit(begin: float, end: float) -> float:
    """Of all the links together, in the mean."""
    return mean(sum(look.credits) for look in between(begin, end))


def distance(begin: float, end: float) -> float:
    return mean(look.distance for look in between(begin, end))


def test_no_step_waits_for_it() -> None:
    swarm, _ = spell()
    assert all(max(node.seconds) < 1.01 * STEP and node.steps > 0.99 * END / STEP for node in swarm.nodes)


def test_credit_and_codec_follow_within_three_seconds_down_and_up() -> None:
    usual = credit(2.0, BEGIN)
    thin, back = between(BEGIN + SOON, BEGIN + SPELL), between(BEGIN + SPELL + SOON, END)
    assert all(set(look.codecs) == {"raw"} for look in between(2.0, BEGIN))
    assert all(sum(look.credits) < usual / 3 and "raw" not in look.codecs for look in thin)
    assert all(sum(look.credits) > usual / 2 and set(look.codecs) == {"raw"} for look in back)


def test_the_nodes_stay_together_and_are_as_near_as_before_in_the_end() -> None:
    usual = distance(2.0, BEGIN)
    assert max(look.distance for look in between(BEGIN, END)) < 3 * usual, "models move on while the link is found out"
    assert distance(BEGIN + SOON, BEGIN + SPELL) < 1.5 * usual
    assert distance(BEGIN + SPELL + SOON, END) < 1.1 * usual
