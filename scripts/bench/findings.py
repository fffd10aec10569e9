"""When does gossip beat all-reduce, and when not: the tables of docs/findings.md, simulated.

    python scripts/bench/findings.py                # both tables
    python scripts/bench/findings.py speed          # steps a second of 16 nodes, against all-reduce
    python scripts/bench/findings.py learning       # seconds until sorted digits are learned, on 8 nodes

Speed: a step computes for one second, and a model is sent over a node's line in 0.1 or 0.8 s (all-reduce: 0.19 or 1.5 s), with
a round trip of 0.5 ms. Learning: 100 MB, a step of 150 ms, variation 0.1, medians over `--seeds`.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from p2p.net.physics import Line
from p2p.sim.pool import simulate_all
from p2p.sim.scenario import Scenario, Straggler, Until
from p2p.sim.trial import Result

BASE = Scenario(nodes=16, workload="consensus", step=1.0)
LINES = {"0.1 s": 1e9, "0.8 s": 125e6}
"""How long a model is on the way, and the bytes a second that make it so."""
SLOWNESS: dict[str, tuple[float, tuple[Straggler, ...]]] = {
    "no variation": (0.001, ()),
    "variation 0.1": (0.1, ()),
    "variation 0.3": (0.3, ()),
    "one node 3x slower": (0.1, (Straggler(1, 3.0),)),
}
SPEED = {
    "all-reduce": "all-reduce",
    "gossip, no deadline": "gossip:deadline=off",
    "the same, overlapped": "gossip:deadline=off,overlap=yes",
    "gossip": "gossip",
    "async": "async",
}


@dataclass(frozen=True)
class World:
    """A row of the second table."""

    name: str
    settings: dict[str, object]


WORLDS = (
    World("10 Gbit, equal nodes", {}),
    World("10 Gbit, one node 5x slower", {"stragglers": (Straggler(1, 5.0),)}),
    World("1 Gbit", {"lan": Line(0.00025, bandwidth=1.25e8)}),
    World("10 Gbit, two sites, 1 Gbit between", {"sites": 2, "wan": Line(0.02, bandwidth=1.25e8)}),
    World("10 Gbit, two sites, 100 Mbit between", {"sites": 2, "wan": Line(0.02, bandwidth=1.25e7)}),
)
LEARNING = {
    "all-reduce": {"algorithm": "all-reduce"},
    "server": {"algorithm": "parameter-server"},
    "gossip": {"algorithm": "gossip", "topology": "base:k=1"},
    "async": {"algorithm": "async"},
    "async, two levels": {"algorithm": "async", "topology": "two-level:inside=complete,every=8"},
}
GOAL, PATIENCE = 0.9, 300.0


def speed(steps: int) -> None:
    """Steps a second of the mean node, as multiples of all-reduce."""
    rows = [(line, slowness) for line in LINES for slowness in SLOWNESS]
    runs = [
        replace(BASE, algorithm=algorithm, lan=Line(0.00025, bandwidth=LINES[line]), variation=SLOWNESS[slowness][0],
                stragglers=SLOWNESS[slowness][1], until=Until(time=float(steps)))
        for line, slowness in rows for algorithm in SPEED.values()
    ]  # fmt: skip
    rates = [statistics.mean(result.steps) / result.seconds for result in simulate_all(runs)]
    print(f"\n| a model takes | | {' | '.join(SPEED)} |\n|{'---|' * (2 + len(SPEED))}")
    for number, (line, slowness) in enumerate(rows):
        own = rates[number * len(SPEED) :][: len(SPEED)]
        ratios = " | ".join(f"{rate / own[0]:.2f}x" for rate in own[1:])
        print(f"| {line} | {slowness} | {own[0]:.3f} steps/s | {ratios} |", flush=True)


def learning(seeds: int) -> None:
    """Seconds to the goal; beside them the steps of the mean node until then."""
    print(f"\n| | {' | '.join(LEARNING)} |\n|{'---|' * (1 + len(LEARNING))}")
    for world in WORLDS:
        runs = [
            Scenario(**{**world.settings, **choice}, until=Until(accuracy=GOAL, time=PATIENCE), seed=seed)  # type: ignore[arg-type]
            for choice in LEARNING.values() for seed in range(seeds)
        ]  # fmt: skip
        results = simulate_all(runs)
        cells = [_cell(results[first : first + seeds]) for first in range(0, len(runs), seeds)]
        print(f"| {world.name} | {' | '.join(cells)} |", flush=True)


def _cell(results: Sequence[Result]) -> str:
    middle = statistics.median(math.inf if result.reached is None else result.reached for result in results)
    steps = statistics.median(statistics.mean(result.steps) for result in results)
    return f"{middle:.1f} s ({steps:.0f})" if middle < math.inf else f"not in {PATIENCE:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", choices=("speed", "learning"))
    parser.add_argument("--steps", type=int, default=60, help="of an undisturbed node, for the first table")
    parser.add_argument("--seeds", type=int, default=3, help="for the second one")
    given = parser.parse_args()
    if given.table != "learning":
        speed(given.steps)
    if given.table != "speed":
        learning(given.seeds)


if __name__ == "__main__":
    main()
