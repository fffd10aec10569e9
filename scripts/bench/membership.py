"""Membership in virtual time, for N = 2 to 1,000: how soon a death is seen, how fast news spreads, what it costs.

python scripts/bench/membership.py              # the table of docs/membership.md; a few minutes
python scripts/bench/membership.py 8 64 -s 20   # these sizes, so many seeds each
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from p2p.agent.records import State
from p2p.net.messages import Phase
from tests.simulation.membership_world import World

SIZES = (2, 8, 32, 64, 128, 256, 1000)


@dataclass(frozen=True)
class Run:
    """What one seed showed; seconds of virtual time."""

    first: float  # from the death to the first that declares it
    everybody: float  # ... to the last
    spread: float  # from an announcement to the last that hears it
    calm: float  # messages a second and node
    cost: float  # microseconds of this machine's time a message


def measure(count: int, seed: int) -> Run:
    world = World(seed)
    nodes = world.flock(count)
    world.run(20 + world.rng.random())  # until nobody talks of the start any more
    calm, cost = _calm(world, count)
    spread = _spread(world, nodes)
    victim = nodes[count // 2]
    world.kill(victim)
    mourners = _Mourners(world, victim)
    first = world.run(120, lambda: mourners.reach(1))
    rest = world.run(60, lambda: mourners.reach(count - 1))
    return Run(first, first + rest, spread, calm, cost)


def _calm(world: World, count: int) -> tuple[float, float]:
    sent, began = world.sent.total(), time.process_time()
    world.run(60)
    messages = world.sent.total() - sent
    return messages / 60 / count, (time.process_time() - began) / messages * 1e6


def _spread(world: World, nodes: list[str]) -> float:
    speaker = world.machines[nodes[0]]
    world.call(nodes[0], speaker.announce(now=world.now, phase=Phase.ARRIVED))
    waiting = [machine for machine in world.machines.values() if machine is not speaker]

    def heard_by_all() -> bool:
        while waiting and waiting[-1].members[nodes[0]].record.phase == Phase.ARRIVED:
            waiting.pop()
        return not waiting

    seconds = world.run(60, heard_by_all)
    world.run(10)
    return seconds


class _Mourners:
    """Counts who declared the victim dead, looking at each change once."""

    def __init__(self, world: World, victim: str) -> None:
        self._world, self._victim = world, victim
        self._seen = len(world.changes)
        self._count = 0

    def reach(self, count: int) -> bool:
        while self._seen < len(self._world.changes):
            change = self._world.changes[self._seen][2]
            self._count += change.node == self._victim and change.after is State.DEAD
            self._seen += 1
        return self._count >= count


def rows(sizes: list[int], seeds: int) -> Iterator[str]:
    """The table in Markdown, a line as soon as it is known."""
    yield "| N | seeds | first declares it dead: median (worst) | all know | news reaches all | messages/s/node | us/message |"
    yield "|---|---|---|---|---|---|---|"
    for count in sizes:
        runs = [measure(count, seed) for seed in range(seeds if count <= 256 else 1 + seeds // 10)]
        firsts, lasts = [run.first for run in runs], [run.everybody for run in runs]
        spread, calm, cost = (statistics.median(getattr(run, name) for run in runs) for name in ("spread", "calm", "cost"))
        yield (
            f"| {count} | {len(runs)} | {statistics.median(firsts):.1f} s ({max(firsts):.1f}) "
            f"| {statistics.median(lasts):.1f} s ({max(lasts):.1f}) | {spread:.2f} s | {calm:.2f} | {cost:.0f} |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("-s", "--seeds", type=int, default=20)
    given = parser.parse_args()
    for line in rows(given.sizes, given.seeds):
        print(line, flush=True)
