"""How long a joiner of a large model takes, against the same bytes over one CURVE connection, and what donors' steps lose.

    python scripts/bench/join.py --megabytes 100 1000 --donors 1 3

Members and joiner are processes of this machine. The trainers mostly wait (a step sleeps `--pause` seconds), as they do
on a GPU. A join is timed from the call of `p2p.join`, before anything is bound or dialled, to its return, and counts only if
the joiner's model is the members'. CPU times say which thread is at work: on few cores they add up to the time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

from harness import Contender, Crew, Spread, Table, Target, alternate, heed, ours, parser, publish, targets

Found = Mapping[str, Mapping[str, list[float]] | str]
Steps = Iterable[tuple[float, float]]
RAW = "one CURVE connection"
THREADS = ("trainer", "agent", "network")
AIMS = {"a join over the bytes alone": 1.4, "a donor's step beside joins over one in the calm": 1.1}


def measure(crew: Crew, joins: int) -> dict[str, list[float]]:
    """Joins, and the steps of those who are there: during them, and without."""
    found: dict[str, list[float]] = {}
    for warm in [True, *[False] * joins]:
        *_, joiner = crew.say("join")
        *members, came = crew.say("look")
        calm = [step for steps in crew.say("rest") for step in steps]
        figures = {
            "seconds": [joiner["ended"] - joiner["began"]],
            "during": _seconds(step for m in members for step in m["steps"] if _overlap(step, joiner)),
            "calm": _seconds(calm),
            **{f"joiner's {who}": [came["cpu"][who]] for who in THREADS},
            **{f"donors' {who}": [sum(m["cpu"][who] for m in members)] for who in THREADS},
        }
        for name, values in figures.items():
            found.setdefault(name, []).extend(values if not warm else ())
    return found


def _overlap(step: tuple[float, float], join: Mapping[str, float]) -> bool:
    return step[0] < join["ended"] and step[1] > join["began"]


def _seconds(steps: Steps) -> list[float]:
    return [ended - began for began, ended in steps]


def table(megabytes: float, donors: int, found: Found) -> Table:
    """Times, and CPU seconds by who needed them."""
    raw, rows = found[RAW], list[tuple[str, ...]]()
    for name, figures in found.items():
        if isinstance(figures, str) or isinstance(raw, str):
            rows.append((name, str(figures).splitlines()[-1][:100], "", "", ""))
            continue
        seconds = Spread.of(figures["seconds"])
        ratio = seconds.median / Spread.of(raw["seconds"]).median
        cpu = [_cpu(figures, whose) for whose in ("joiner's", "donors'")]
        rows.append((name, seconds.text(), f"{ratio:.2f}", *cpu))
    columns = ("way", "ms", "over the bytes alone", "joiner's CPU ms", "donors' CPU ms")
    notes = [f"CPU: {' + '.join(THREADS)}", *_steps(found)]
    return Table(f"{megabytes:g} MB, {donors} donor{'s' * (donors > 1)}", columns, rows, tuple(notes))


def _cpu(figures: Mapping[str, list[float]], whose: str) -> str:
    return " + ".join(f"{1e3 * Spread.of(figures[f'{whose} {who}']).median:.0f}" for who in THREADS)


def _steps(found: Found) -> Iterable[str]:
    for name, figures in found.items():
        if not isinstance(figures, str) and figures["during"]:
            calm, during = Spread.of(figures["calm"]), Spread.of(figures["during"])
            yield f"{name}: a donor's step, ms: {calm.text()} in the calm, {during.text()} in {during.count} steps beside joins"


def aims(megabytes: float, donors: int, found: Found) -> list[Target]:
    where = f"{megabytes:g} MB, {donors} donor{'s' * (donors > 1)}"
    raw, join = found[RAW], found["join"]
    if isinstance(raw, str) or isinstance(join, str):
        return [Target(f"{where}: {what}", wanted, None) for what, wanted in AIMS.items()]
    took = [_median(join["seconds"], raw["seconds"]), _median(join["during"], join["calm"])]
    return [Target(f"{where}: {what}", wanted, got) for (what, wanted), got in zip(AIMS.items(), took, strict=True)]


def _median(values: list[float], base: list[float]) -> float | None:
    return Spread.of(values).median / Spread.of(base).median if values and base else None


def rivals(megabytes: float, pause: float) -> list[Contender]:
    return [Contender(RAW, ours("curve.py", megabytes)), Contender("join", ours("joining.py", megabytes, pause))]


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--megabytes", type=float, nargs="+", default=[100.0])
    made.add_argument("--donors", type=int, nargs="+", default=[1])
    made.add_argument("--joins", type=int, default=4, help="timed in each turn, after one that is not")
    made.add_argument("--turns", type=int, default=3)
    made.add_argument("--pause", type=float, default=0.05, help="seconds that a member's step waits")
    return made.parse_args()


def main() -> None:
    heed()
    args = arguments()
    found = {
        (megabytes, donors): alternate(
            rivals(megabytes, args.pause), donors + 1, args.turns, lambda crew: measure(crew, args.joins)
        )
        for megabytes in args.megabytes
        for donors in args.donors
    }
    aimed = [target for setting, f in found.items() for target in aims(*setting, f)]
    tables = [*(table(*setting, f) for setting, f in found.items()), targets(aimed)]
    publish("join", args, tables, {f"{megabytes:g} MB, {donors}": f for (megabytes, donors), f in found.items()})


if __name__ == "__main__":
    main()
