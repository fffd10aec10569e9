"""What it costs to exchange a model with a neighbour, beside what a user would pick instead: all in one run, in turn.

    python scripts/bench/exchange.py                          # 100 MB of float32 between 2 and between 4 processes
    python scripts/bench/exchange.py --only zeromq --nodes 2  # rows with this word

One exchange is, for ours: a full synchronous round (`gossip`: copy the state, send it, mix what came), or each block swapped
once more by each node (`async`, the trainer stepping beside it without pause). For gloo: an all-reduce to the mean, or send,
receive and mix. Raw TCP and raw ZeroMQ only move the bytes. Each contender is checked before it is timed: within `--checks`
exchanges every process has the mean of all (the raw ones: what the other sent). Times are from the first process's beginning
to the last one's end.
"""

from __future__ import annotations

from harness import Contender, Crew, Failed, Spread, Table, alternate, ours, parser, publish, span
from venvs import python_of

EQUAL = 1e-3
"""Largest error, relative to how far apart the processes were at the start."""
BASES = ("gloo all-reduce", "raw zeromq", "raw zeromq, encrypted")


def contenders(megabytes: float, cache: object, only: str) -> list[Contender]:
    """All rows, or those with this word."""
    made = [
        Contender("gossip", ours("swarm.py", "gossip", "plain", megabytes)),
        Contender("async", ours("swarm.py", "async", "plain", megabytes)),
        Contender("raw tcp", ours("raw.py", "tcp", "plain", megabytes)),
        Contender("raw zeromq", ours("raw.py", "zeromq", "plain", megabytes)),
        Contender("gloo all-reduce", ours("gloo.py", "all-reduce", megabytes)),
        Contender("gloo send-receive", ours("gloo.py", "send-receive", megabytes)),
        Contender("gossip, encrypted", ours("swarm.py", "gossip", "encrypted", megabytes)),
        Contender("async, encrypted", ours("swarm.py", "async", "encrypted", megabytes)),
        Contender("raw zeromq, encrypted", ours("raw.py", "zeromq", "encrypted", megabytes)),
    ]
    return [c for c in made if only in c.name] + [
        peer(name, package, script, megabytes, cache)
        for name, package, script in (
            ("hivemind 1.1.12", "hivemind", "hivemind_averager.py"),
            ("decent-dp 0.2.3", "decent-dp", "decent.py"),
            ("torchft 0.2.0", "torchft", "torchft_manager.py"),
        )
        if only in name
    ]


def peer(name: str, package: str, script: str, megabytes: float, cache: object) -> Contender:
    python, missing = python_of(package, cache)
    return Contender(name, ours(script, megabytes, python=python or ""), missing=missing)


def measure(crew: Crew, checks: int, warm: int, rounds: int) -> dict[str, list[float]]:
    """Check, warm up, time."""
    crew.say("fill")
    errors = [_error(crew)]
    while errors[-1] > EQUAL and len(errors) < checks:
        errors.append(_error(crew))
    if errors[-1] > EQUAL:
        raise Failed(f"the results are not equal: after {checks} exchanges one is {errors[-1]:.2g} of the spread from the mean")
    for _ in range(warm):
        crew.say("exchange")
    answers = [crew.say("exchange") for _ in range(rounds)]
    sent = [a.get("sent", 0.0) for answer in answers for a in answer]
    return {"seconds": [span(answer) for answer in answers], "sent": sent, "until equal": [len(errors)], "error": errors[-1:]}


def _error(crew: Crew) -> float:
    """The largest, after one more exchange."""
    crew.say("exchange")
    return max(crew.say("error"))


def table(size: int, megabytes: float, found: dict[str, dict[str, list[float]] | str]) -> Table:
    """With ratios to what each is held against."""
    medians = {name: Spread.of(f["seconds"]).median for name, f in found.items() if not isinstance(f, str)}
    rows = []
    for name, figures in found.items():
        if isinstance(figures, str):
            rows.append((name, figures.splitlines()[-1][:100], *[""] * (1 + len(BASES))))
            continue
        sent = Spread.of(figures["sent"]).median / 1e6
        ratios = [f"{medians[name] / medians[base]:.2f}" if base in medians else "" for base in BASES]
        rows.append((name, Spread.of(figures["seconds"]).text(), f"{sent:.0f}" if sent else "", *ratios))
    columns = ("contender", "ms per exchange", "MB sent by each", *(f"over {base}" for base in BASES))
    return Table(f"{megabytes:g} MB of float32, {size} processes", columns, rows)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--megabytes", type=float, default=100.0)
    made.add_argument("--nodes", type=int, nargs="+", default=[2, 4])
    made.add_argument("--turns", type=int, default=3)
    made.add_argument("--rounds", type=int, default=10, help="timed in each turn")
    made.add_argument("--warm", type=int, default=3, help="not timed before them")
    made.add_argument("--checks", type=int, default=60)
    made.add_argument("--only", default="", help="rows with this word")
    args = made.parse_args()
    rivals = contenders(args.megabytes, args.cache, args.only)
    found = {
        size: alternate(rivals, size, args.turns, lambda crew: measure(crew, args.checks, args.warm, args.rounds))
        for size in args.nodes
    }
    publish("exchange", args, [table(size, args.megabytes, f) for size, f in found.items()], found)


if __name__ == "__main__":
    main()
