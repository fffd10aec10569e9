"""`starlings simulate`: know before you run."""

from __future__ import annotations

import logging
import math
import signal
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from json import dumps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2p.topology_cli import Json, console, table

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from p2p.sim.scenario import Scenario
    from p2p.sim.trial import Look, Result

INTERVAL_WARN = 3.0
"""Steps between two exchanges of one piece above which a note is printed."""
BARS = 8
"""Shown at once."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def option(metavar: str, says: str, *names: str) -> Any:
    """An option that is read as in a scenario's file."""
    return typer.Option(*names, metavar=metavar, help=says)


File = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Any of these settings, as TOML; options go before it.")]
Nodes = Annotated[str | None, option("N", "How many. [8]", "-n", "--nodes")]
Topologies = Annotated[list[str] | None, option("NAME", "As for launch; several are compared. [one-peer-exponential]")]
Algorithms = Annotated[
    list[str] | None, option("NAME", "As for launch, or all-reduce, parameter-server; several are compared. [async]")
]
Codecs = Annotated[
    list[str] | None, option("NAME", "How models travel, as raw, bfloat16, int8, auto; several are compared. [raw]")
]
Workload = Annotated[str | None, option("NAME", "consensus, quadratic or digits. [digits]")]
Split = Annotated[str | None, option("NAME", "Of the digits: sorted, shuffled or dirichlet. [sorted]")]
Sites = Annotated[str | None, option("N", "Datacenters, to which nodes are dealt in turn. [1]")]
Lan = Annotated[str | None, option("RATE,TIME", "A node's own line, and the round trip within a site. [10gbit,0.5ms]")]
Wan = Annotated[str | None, option("RATE,TIME", "The line between two sites, shared by their nodes. [100mbit,40ms]")]
ModelSize = Annotated[str | None, option("SIZE", "Of the parameters. [100MB]")]
StepTime = Annotated[str | None, option("TIME", "Of a step's computation. [150ms]")]
Variation = Annotated[str | None, option("SHARE", "Its coefficient of variation. [0.1]")]
Stragglers = Annotated[list[str] | None, option("NxFACTOR", "1x5: one node five times slower.")]
Faults = Annotated[list[str] | None, option("FAULT", "kill:3@60s, stall:2@30s+10s, cut:site1@60s+20s, slow:4x10@0s ...")]
Until = Annotated[str | None, option("WHAT", "loss=0.1,time=1h,steps=1000: the first of them. [steps=200]")]
Seeds = Annotated[list[str] | None, option("N", "Several are run; the table has their medians. [0]")]
Jobs = Annotated[int, typer.Option(min=0, help="Runs at a time, each in a process of its own; 0: one per core.")]
Plot = Annotated[Path | None, option("FILE", "Loss and distance over time, as .png, .svg or .pdf.")]


def simulate(
    scenario: File = None,
    nodes: Nodes = None,
    topology: Topologies = None,
    algorithm: Algorithms = None,
    codec: Codecs = None,
    workload: Workload = None,
    split: Split = None,
    sites: Sites = None,
    lan: Lan = None,
    wan: Wan = None,
    model_size: ModelSize = None,
    step_time: StepTime = None,
    variation: Variation = None,
    straggler: Stragglers = None,
    fault: Faults = None,
    until: Until = None,
    seed: Seeds = None,
    json: Json = False,
    plot: Plot = None,
    jobs: Jobs = 0,
) -> None:
    """Train a simulated swarm: real agents in virtual time, on links and machines as you say. Ctrl-C shows what there is."""
    options = {
        "nodes": nodes, "topology": topology, "algorithm": algorithm, "codec": codec, "workload": workload, "split": split,
        "sites": sites, "lan": lan, "wan": wan, "model-size": model_size, "step-time": step_time, "variation": variation,
        "straggler": straggler, "fault": fault, "until": until, "seed": seed,
    }  # fmt: skip
    results, interrupted = _run(_scenarios(scenario, options), plot, jobs)
    if json:
        print(dumps([result.as_dict() for result in results]))
    else:
        show(results)
    if plot and results:
        from p2p.sim.plot import draw

        draw(results, plot)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def _scenarios(file: Path | None, options: dict[str, Any]) -> list[Scenario]:
    """The file's settings, over which options go. All are checked before the first runs."""
    from p2p.sim.reading import read, scenarios
    from p2p.sim.trial import check

    found = scenarios((read(file) if file else {}) | {name: value for name, value in options.items() if value})
    for one in found:
        check(one)
    return found


def _run(scenarios: Sequence[Scenario], plot: Path | None, jobs: int) -> tuple[list[Result], bool]:
    """Until an interrupt; whether one came."""
    from p2p.sim.pool import simulate_all

    if plot:
        from p2p.sim.plot import ready

        ready(plot)
    with quiet(), _interrupt() as interrupted, Bars(len(scenarios)) as bars:

        def watch(scenario: Scenario, look: Look) -> bool:
            bars.show(scenario, look)
            return bool(interrupted)

        return simulate_all(scenarios, watch, jobs), bool(interrupted)


@contextmanager
def _interrupt() -> Iterator[list[int]]:
    """A list that the first Ctrl-C puts something into; the second one is the ordinary one."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def quiet() -> Iterator[None]:
    """What simulated nodes would warn their users of is in the table's notes."""
    logger = logging.getLogger("starlings")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class Bars:
    """How far the runs are that were heard of last; on a terminal alone."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._progress: Progress | None = None
        self._tasks: dict[Scenario, TaskID] = {}

    def __enter__(self) -> Bars:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn()
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, scenario: Scenario, look: Look) -> None:
        if self._progress is None:
            return
        if scenario not in self._tasks:
            title = f"{len(self._tasks) + 1}/{self._runs} {scenario.choice}, seed {scenario.seed}"
            self._tasks[scenario] = self._progress.add_task(title, total=1.0, text="")
            for old in [*self._tasks.values()][:-BARS]:
                self._progress.update(old, visible=False)
        text = f"{look.time:.0f} s, {look.steps:.0f} steps, loss {look.loss:.3g}, distance {look.distance:.2g}"
        self._progress.update(self._tasks[scenario], completed=share(scenario, look), text=text)


def share(scenario: Scenario, look: Look) -> float:
    """How much of a run is over, 0 to 1; its loss may end it sooner."""
    from p2p.sim.scenario import STEPS_MAX

    until = scenario.until
    steps = until.steps or (None if until.time else STEPS_MAX)
    return max(look.steps / steps if steps else 0.0, look.time / until.time if until.time else 0.0)


# --- the table -------------------------------------------------------------------------------------------------------

HEAD = (
    "algorithm and topology", "to target", "virtual time", "steps per node", "steps/s", "waiting", "LAN", "WAN", "loss",
    "accuracy", "distance", "contribution",
)  # fmt: skip


def show(results: Sequence[Result]) -> None:
    """One row per choice, with the medians over its seeds."""
    if not results:
        print("stopped before anything was seen")
        return
    choices = [list(group) for _, group in groupby(results, key=lambda result: result.scenario.choice)]
    out = console()
    out.print(table(HEAD, [_row(group) for group in choices]))
    for note in _notes(results):
        out.print(note)


def _row(runs: Sequence[Result]) -> list[str]:
    def median(values: Iterator[float]) -> float:
        return statistics.median(values)

    shares = [part for run in runs for part in run.contribution]
    accuracies = [run.last.accuracy for run in runs if run.last.accuracy is not None]
    return [
        runs[0].scenario.choice,
        _reached(runs),
        f"{median(run.seconds for run in runs):.1f} s",
        _range([steps for run in runs for steps in run.steps], "d"),
        f"{median(run.rate for run in runs):.2f}",
        f"{100 * median(run.waiting for run in runs):.0f} %",
        f"{median(run.inside for run in runs) / 1e9:.2f} GB",
        f"{median(run.between for run in runs) / 1e9:.2f} GB",
        f"{median(run.last.loss for run in runs):.3g}",
        f"{statistics.median(accuracies):.3f}" if accuracies else "-",
        f"{median(run.last.distance for run in runs):.2g}",
        _range([100 * part for part in shares], ".1f") + " %",
    ]


def _reached(runs: Sequence[Result]) -> str:
    """The median time to the target, where more than half of the seeds reached it."""
    if not runs[0].scenario.until.target:
        return "-"
    times = [math.inf if run.reached is None else run.reached for run in runs]
    middle = statistics.median(times)
    said = f"{middle:.1f} s" if middle < math.inf else "not reached"
    missed = times.count(math.inf)
    return f"{said} ({len(runs) - missed} of {len(runs)})" if missed and len(runs) > 1 else said


def _range(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low}-{high}"


def _notes(results: Sequence[Result]) -> Iterator[str]:
    for run in results:
        name = f"{run.scenario.choice}, seed {run.scenario.seed}"
        if not run.complete:
            yield f"{name}: stopped at {run.seconds:.1f} s"
        if run.interval > INTERVAL_WARN:
            yield f"{name}: each piece is exchanged every {run.interval:.1f} steps only; unlike data is learned slowly then"
        silent = len(run.scenario.faults) - len(run.faults)
        if silent:
            yield f"{name}: {silent} of {len(run.scenario.faults)} faults struck nothing, or would have come after the end"
