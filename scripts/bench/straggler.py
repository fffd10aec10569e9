"""What a slow node costs: time until the averaged model is at 0.95, eight processes, beside DDP and decent-dp in turn.

    python scripts/bench/straggler.py --seeds 1               # about 3 minutes on two cores; each seed as much again
    python scripts/bench/straggler.py --split sorted --pace "one slow" --limit 60

Digits are dealt to eight processes sorted by label, or shuffled. A step waits 100 ms, as if it computed, then takes the
gradient of a small model and exchanges it. One node waits five times as long, or all wait at random (gamma distributed,
coefficient of variation 0.3), or nothing is slow; which node and which lengths follow from the seed, the same for all. Each
keeps its parameters after each step in memory; the mean's accuracy on held-out images is computed after the run. A run ends
when a watcher, which looks four times a second, has seen the goal twice, or at `--limit`.

"Steps" is the mean of all nodes' own ones at that moment. "Late" is by how much the median step is longer than what it waits:
if the machine is too small, it shows here.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
import torch
from board import Board
from harness import Contender, Crew, Failed, Spread, Table, Target, excused, ours, parser, publish, say, targets
from torch import nn
from venvs import python_of

from p2p.sim.compute import Paced
from p2p.sim.workloads import Digits, digits

NODES, GOAL, SLOW, VARIATION = 8, 0.95, 5.0, 0.3
STEPS = 1000
"""Lengths that are drawn; longer runs begin again."""
LOOK = 0.25
"""Seconds between two looks of the watcher."""
SPLITS = ("sorted", "shuffled")
PACES = ("none slow", "one slow", "random")
APART = {"ddp": 1e-3}
"""Largest distance of a process to the mean at the end, over how far the mean has come; others: 1, less than not exchanging."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """What is trained, and how long the steps wait."""

    split: str
    pace: str
    seed: int
    length: float

    @property
    def name(self) -> str:
        return f"{self.split}, {self.pace}"

    @property
    def slow(self) -> dict[int, float]:
        """Whose steps are how many times longer."""
        return {self.seed % NODES: SLOW} if self.pace == "one slow" else {}

    def lengths(self) -> npt.NDArray[np.float64]:
        """Seconds of each rank's steps; (ranks, steps)."""
        pace = Paced(self.length, VARIATION if self.pace == "random" else 0.0, self.slow, seed=self.seed)
        return np.array([[pace.seconds(node, 1 + step) for step in range(STEPS)] for node in range(NODES)])

    @property
    def work(self) -> Digits:
        return Digits(NODES, self.split, self.seed)  # type: ignore[arg-type]

    def start(self) -> Floats:
        """The parameters with which all begin."""
        return nn.utils.parameters_to_vector(self.work.model(0).parameters()).detach().numpy()

    def save(self, path: Path) -> None:
        """What `ways/digits.py` reads."""
        images, labels = (tensor.numpy() for tensor in digits())
        shares = {f"share-{rank}": share for rank, share in enumerate(self.work.shares)}
        np.savez(path, images=images, labels=labels, seed=self.seed, weights=self.start(), lengths=self.lengths(), **shares)


class Scorer:
    """Accuracy of parameters on the held-out images."""

    def __init__(self, work: Digits) -> None:
        self._work, self._model = work, work.model(0)

    def __call__(self, vector: Floats) -> float:
        nn.utils.vector_to_parameters(torch.from_numpy(vector), self._model.parameters())
        return self._work.score(self._model)


@dataclass(frozen=True)
class Track:
    """One rank's parameters after each step, and when that was."""

    times: npt.NDArray[np.float64]
    models: Floats

    @classmethod
    def load(cls, path: Path) -> Track:
        with np.load(path) as file:
            return cls(file["times"], file["models"])


@dataclass(frozen=True)
class Outcome:
    """Of one run; infinite where the mean was never at the goal."""

    seconds: float
    steps: float
    late: float


def reached(tracks: Sequence[Track], start: Floats, scorer: Scorer) -> tuple[float, float]:
    """When the mean of all ranks' newest parameters was first at the goal, and how many steps they had taken on average."""
    newest, taken = [start] * len(tracks), 0
    for moment, rank, step in sorted((t, rank, i) for rank, track in enumerate(tracks) for i, t in enumerate(track.times)):
        newest[rank], taken = tracks[rank].models[step], taken + 1
        if scorer(np.mean(newest, axis=0)) >= GOAL:
            return moment, taken / len(tracks)
    return math.inf, math.inf


def apart(tracks: Sequence[Track], start: Floats) -> float:
    """Largest distance of any rank to the mean at the end, over how far the mean has come."""
    last = np.stack([track.models[-1] for track in tracks])
    mean = last.mean(0)
    return float(np.linalg.norm(last - mean, axis=1).max() / np.linalg.norm(mean - start))


def late(tracks: Sequence[Track], case: Case) -> float:
    """By how much the median step of those that are not slow is longer than it waits; over what it waits."""
    lengths = case.lengths()
    ratios = [
        np.diff(track.times) / lengths[rank, 1 : len(track.times)]
        for rank, track in enumerate(tracks)
        if rank not in case.slow and len(track.times) <= STEPS
    ]
    return float(np.median(np.concatenate(ratios))) - 1


# --- a run -----------------------------------------------------------------------------------------------------------


class Runner:
    """One contender's crew, which stays for all cases."""

    def __init__(self, contender: Contender, stack: ExitStack) -> None:
        self.name = contender.name
        self._crew = stack.enter_context(Crew(contender, NODES))
        self._runs = 0

    def ready(self) -> None:
        self._crew.ready()

    def run(self, case: Case, limit: float) -> Outcome:
        """Raises Failed where the ranks did not train together."""
        start, scorer, folder = case.start(), Scorer(case.work), self._crew.folder
        case.save(folder / f"case-{self._runs}.npz")
        self._runs += 1
        board = Board(folder, NODES, len(start), new=True)
        self._crew.say("join")
        self._crew.tell("run")
        watch(board, scorer, limit)
        began = max(self._crew.answers())
        self._crew.say("leave")
        tracks = [Track.load(folder / f"track-{rank}.npz") for rank in range(NODES)]
        most = apart(tracks, start)
        if not most < APART.get(self.name, 1.0):
            raise Failed(f"the processes are not one: one is {most:.2g} of the way from the mean")
        moment, steps = reached(tracks, start, scorer)
        return Outcome(moment - began, steps, late(tracks, case))


def watch(board: Board, scorer: Scorer, limit: float) -> None:
    """Call the end when the goal is seen twice in a row, or at the limit."""
    deadline, seen = time.monotonic() + limit, 0
    while seen < 2 and time.monotonic() < deadline:
        time.sleep(LOOK)
        seen = seen + 1 if scorer(board.mean()) >= GOAL else 0
    board.call()


Found = dict[str, dict[str, list[Outcome]]]
"""By case and contender, one of each seed."""


def compare(rivals: Sequence[Contender], cases: Sequence[Case], limit: float) -> tuple[Found, dict[str, str]]:
    """All cases, each by all contenders in turn; and why some could not, or not to the end."""
    found: Found = {}
    failed = {rival.name: rival.missing for rival in rivals if rival.missing}
    with ExitStack() as stack:
        runners = [Runner(rival, stack) for rival in rivals if not rival.missing]
        for runner in runners:
            with excused(runner.name, failed):
                runner.ready()
        for case in cases:
            for runner in [r for r in runners if r.name not in failed]:
                say(f"seed {case.seed}, {case.name}: {runner.name}")
                with excused(runner.name, failed):
                    found.setdefault(case.name, {}).setdefault(runner.name, []).append(runner.run(case, limit))
    return found, failed


# --- what is printed -------------------------------------------------------------------------------------------------


def middle(found: Found, case: str, name: str, what: str) -> float | None:
    """The median over the seeds."""
    runs = found.get(case, {}).get(name)
    return median(getattr(run, what) for run in runs) if runs else None


def table(found: Found, failed: dict[str, str], names: Sequence[str], limit: float) -> Table:
    rows = []
    for case, runs in found.items():
        for name in names:
            if name not in runs:
                continue
            mine, theirs = (middle(found, case, who, "seconds") for who in (name, "ddp"))
            rows.append(
                (
                    f"{case}: {name}",
                    _text([run.seconds for run in runs[name]], 1),
                    _text([run.steps for run in runs[name]], 0),
                    f"{theirs / mine:.2f}" if mine and theirs and mine < math.inf else "",
                    f"{middle(found, case, name, 'late'):.0%}",
                )
            )
    rows += [(f"{name}: {reason.splitlines()[-1][:100]}", "", "", "", "") for name, reason in failed.items()]
    columns = ("case and contender", f"s to {GOAL}", "steps", "times sooner than ddp", "late")
    return Table(f"{NODES} processes, digits; inf: not within {limit:g} s", columns, rows)


def _text(values: Sequence[float], digits: int) -> str:
    return Spread.of(values).text(1.0, digits)


def aims(found: Found, own: str) -> list[Target]:
    """What the averaged model should reach, against DDP; by medians over the seeds."""

    def over(case: str, what: str, above: str, below: str) -> float | None:
        first, second = (middle(found, case, who, what) for who in (above, below))
        return first / second if first and second else None

    made = []
    for split, sooner, steps in (("sorted", 2.2, 1.7), ("shuffled", 3.5, 1.2)):
        made += [
            Target(
                f"{split}, one slow: times sooner than ddp", sooner, over(f"{split}, one slow", "seconds", "ddp", own), True
            ),
            Target(f"{split}, random: seconds over ddp's", 1.0, over(f"{split}, random", "seconds", own, "ddp")),
            Target(f"{split}, none slow: steps over ddp's", steps, over(f"{split}, none slow", "steps", own, "ddp")),
        ]
    return made


def contenders(algorithm: str, cache: Path) -> list[Contender]:
    python, missing = python_of("decent-dp", cache)
    return [
        Contender(algorithm, ours("digits.py", algorithm)),
        Contender("ddp", ours("digits.py", "ddp")),
        Contender("decent-dp", ours("digits.py", "decent-dp", python=python or sys.executable), missing=missing),
    ]


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--seeds", type=int, default=8)
    made.add_argument("--first", type=int, default=0, help="seed")
    made.add_argument("--split", choices=SPLITS, help="else both")
    made.add_argument("--pace", choices=PACES, help="else all")
    made.add_argument("--length", type=float, default=0.1, help="seconds that a step waits")
    made.add_argument("--limit", type=float, default=40.0, help="seconds of one run, 100 at most")
    made.add_argument("--algorithm", default="async")
    made.add_argument("--only", default="", help="contenders with this word")
    args = made.parse_args()
    torch.set_num_threads(1)
    rivals = [c for c in contenders(args.algorithm, args.cache) if args.only in c.name]
    cases = [
        Case(split, pace, seed, args.length)
        for seed in range(args.first, args.first + args.seeds)
        for split in ([args.split] if args.split else SPLITS)
        for pace in ([args.pace] if args.pace else PACES)
    ]
    found, failed = compare(rivals, cases, args.limit)
    tables = [table(found, failed, [rival.name for rival in rivals], args.limit), targets(aims(found, args.algorithm))]
    figures = {case: {name: [asdict(run) for run in runs] for name, runs in by.items()} for case, by in found.items()}
    publish("straggler", args, tables, {"runs": figures, "failed": failed})


if __name__ == "__main__":
    main()
