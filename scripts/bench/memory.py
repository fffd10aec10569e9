"""What a swarm needs of memory beyond training alone, by algorithm, over the size of what is shared; DDP beside it.

    python scripts/bench/memory.py
    python scripts/bench/memory.py --model tiny --algorithms async

Two processes train a model of 25 million parameters with momentum, which is shared as well: 200 MB. Shown is what is resident
at most, less the same of training alone, in MiB and over the shared bytes, and whether it grows in the second half.
"""

from __future__ import annotations

import math

from harness import Contender, Crew, Spread, Table, Target, alternate, ours, parser, publish, targets

ALGORITHMS = ("async", "gossip", "push-sum")
SHARED = {"large": 2 * 4 * 5 * 2236**2, "tiny": 2 * 4 * 3 * 64**2}
"""Bytes of parameters and momentum."""
MIB = 2**20
LINK = 64 * MIB
"""Bytes that one link may need; two processes have one."""


def measure(crew: Crew) -> dict[str, list[float]]:
    """A lot of steps, and another one: is there more afterwards?"""
    crew.say("steps")
    early = crew.say("usage")
    crew.say("steps")
    late = crew.say("usage")
    found = {name: [float(usage[name]) for usage in late] for name in late[0]}
    growth = [after["resident"] / before["resident"] - 1 for before, after in zip(early, late, strict=True)]
    return {**found, "growth": growth}


def table(model: str, found: dict[str, dict[str, list[float]] | str]) -> Table:
    alone = found["alone"]
    rows = []
    for name, figures in found.items():
        if isinstance(figures, str) or isinstance(alone, str):
            rows.append((name, str(figures).splitlines()[-1][:100], "", "", "", "", ""))
            continue
        mids = {what: Spread.of(values).median for what, values in figures.items()}
        more = mids["peak"] - Spread.of(alone["peak"]).median
        rows.append(
            (
                name,
                Spread.of(figures["peak"]).text(MIB, 0),
                f"{more / MIB:.0f}",
                f"{more / SHARED[model]:.2f}",
                f"{mids['growth']:+.1%}",
                f"{mids['threads']:.0f}",
                f"{mids['descriptors']:.0f}",
            )
        )
    columns = ("way", "peak, MiB", "more than alone", "over what is shared", "growth", "threads", "descriptors")
    return Table(f"{model} model, {SHARED[model] / MIB:.0f} MiB shared, 2 processes", columns, rows)


def aims(model: str, found: dict[str, dict[str, list[float]] | str]) -> list[Target]:
    """Of each algorithm; against training alone."""

    def mid(way: str, what: str) -> float:
        figures = found.get(way, "")
        return math.nan if isinstance(figures, str) else Spread.of(figures[what]).median

    ways = [way for way in found if way not in ("alone", "ddp")]
    more = {way: (mid(way, "peak") - mid("alone", "peak") - LINK) / SHARED[model] for way in ways}
    return [
        *(Target(f"{way}: more than alone, less 64 MiB for the link, over what is shared", 2.1, more[way]) for way in ways),
        *(Target(f"{way}: growth", 0.02, mid(way, "growth")) for way in ways),
    ]


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--model", choices=SHARED, default="large")
    made.add_argument("--algorithms", nargs="+", default=ALGORITHMS)
    made.add_argument("--steps", type=int, default=50, help="in each half")
    made.add_argument("--turns", type=int, default=1)
    args = made.parse_args()
    ways = ("alone", "ddp", *args.algorithms)
    rows = [Contender(way, ours("train.py", way, args.model, args.steps)) for way in ways]
    found = alternate(rows, 2, args.turns, measure)
    publish("memory", args, [table(args.model, found), targets(aims(args.model, found))], found)


if __name__ == "__main__":
    main()
