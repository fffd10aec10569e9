"""What a training step costs with `async` beside it, against the same step alone, and under DDP: all in one run, in turn.

    python scripts/bench/overlap.py
    python scripts/bench/overlap.py --only tiny

Two processes train a model of 25 million parameters, or a tiny one whose step takes about two milliseconds. What a step uses
more of CPU time than the step alone is shown apart: the hook (all in `optimizer.step()`: meeting, reporting) and the process's
other threads (the agent and its I/O: moving and mixing). On as many cores as processes that cost shows in the step; "the
bound" is 1.05 times the step alone, plus all CPU time that is used more.
"""

from __future__ import annotations

import math

from harness import Contender, Crew, Failed, Spread, Table, Target, alternate, ours, parser, publish, targets

NAMES = ("seconds", "updates", "trainer", "others")
WAYS = {"large": ("alone", "async", "ddp"), "tiny": ("alone", "async:period=10", "async", "ddp")}


def measure(crew: Crew, rounds: int) -> dict[str, list[float]]:
    """Steps of all processes, the first lot left out; their losses must have fallen."""
    crew.say("steps")
    answers = [answer for _ in range(rounds) for answer in crew.say("steps")]
    for losses in crew.say("losses"):
        if not losses[-1] < losses[0]:
            raise Failed(f"training does not work: the loss went from {losses[0]:.3g} to {losses[-1]:.3g}")
    return {name: [figure for answer in answers for figure in answer[name]] for name in NAMES}


Found = dict[str, dict[str, list[float]] | str]


def mid(found: Found, way: str, what: str) -> float:
    """Its median; no number where the way failed."""
    figures = found.get(way, "")
    return math.nan if isinstance(figures, str) else Spread.of(figures[what]).median


def aims(found: dict[str, Found]) -> list[Target]:
    """The large model's step against the bound, and what the tiny one's costs where every tenth exchanges."""
    large, tiny, seldom = found.get("large", {}), found.get("tiny", {}), "async:period=10"
    more = {what: mid(large, "async", what) - mid(large, "alone", what) for what in ("trainer", "others")}
    bound = 1.05 * mid(large, "alone", "seconds") + more["trainer"] + more["others"]
    spent = sum(mid(tiny, seldom, what) - mid(tiny, "alone", what) for what in ("updates", "others"))
    return [
        Target("large, async: the step over the bound", 1.0, mid(large, "async", "seconds") / bound),
        Target(f"tiny, {seldom}: hook and other threads, CPU us", 150, spent * 1e6),
    ]


def table(size: str, found: Found) -> Table:
    """Each way against the step alone."""
    alone = found["alone"]
    rows = []
    for name, figures in found.items():
        if isinstance(figures, str) or isinstance(alone, str):
            rows.append((name, str(figures).splitlines()[-1][:100], "", "", "", ""))
            continue
        more = {what: Spread.of(figures[what]).median - Spread.of(alone[what]).median for what in NAMES}
        step, base = (Spread.of(f["seconds"]).median for f in (figures, alone))
        rows.append(
            (
                name,
                Spread.of(figures["seconds"]).text(digits=2),
                f"{step / base:.2f}",
                f"{more['updates'] * 1e6:.0f}",
                f"{more['others'] * 1e6:.0f}",
                f"{step / (1.05 * base + more['trainer'] + more['others']):.2f}",
            )
        )
    columns = ("way", "ms per step", "over alone", "hook, CPU us", "other threads, CPU us", "over the bound")
    return Table(f"{size} model, 2 processes", columns, rows)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--only", choices=WAYS, help="this model")
    made.add_argument("--turns", type=int, default=3)
    made.add_argument("--rounds", type=int, default=3, help="timed lots of steps in each turn, after one that is not")
    made.add_argument("--large", type=int, default=20, help="steps in a lot")
    made.add_argument("--tiny", type=int, default=1000, help="steps in a lot")
    args = made.parse_args()
    found = {}
    for size in [args.only] if args.only else list(WAYS):
        lot = getattr(args, size)
        rows = [Contender(way, ours("train.py", way, size, lot)) for way in WAYS[size]]
        found[size] = alternate(rows, 2, args.turns, lambda crew: measure(crew, args.rounds))
    publish("overlap", args, [*(table(size, figures) for size, figures in found.items()), targets(aims(found))], found)


if __name__ == "__main__":
    main()
