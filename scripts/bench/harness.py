"""What benches share: crews of processes that are timed in turn, spreads, the machine's name, a table and JSON.

A *contender* is one way to do the work, ours or a peer's: the command of its processes. In each turn every contender is
started anew, checked, warmed up and timed, one after the other, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from p2p.report import finite

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PATIENCE = 180.0
"""Seconds that a crew has for one answer before it is ended."""


class Failed(Exception):
    """A contender did not do what it should; says what it printed last."""


@dataclass(frozen=True)
class Contender:
    """One row of a table. `command` becomes its processes' by adding rank, number of processes, and a folder for notes."""

    name: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""
    """Why it can't be run."""


def ours(script: str, *arguments: object, python: str | Path = sys.executable) -> tuple[str, ...]:
    """The command of a script in `ways`."""
    return (str(python), str(HERE / "ways" / script), *map(str, arguments))


class Crew:
    """A contender's processes, which wait for a word. Use it in a `with` block."""

    def __init__(self, contender: Contender, size: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="starlings-bench-"))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}", **contender.environment}
        self._log = (self.folder / "log").open("w")
        self._processes = [
            subprocess.Popen(
                [*contender.command, str(rank), str(size), str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=environment,
            )
            for rank in range(size)
        ]

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def ready(self) -> None:
        """Wait until all have begun."""
        self.answers()

    def say(self, word: str) -> list[Any]:
        """The word to all, and all their answers. Raises Failed where one has ended, or doesn't answer."""
        self.tell(word)
        return self.answers()

    def tell(self, word: str) -> None:
        """The word to all, whose answers are fetched later."""
        for process in self._processes:
            assert process.stdin is not None
            try:
                print(word, file=process.stdin, flush=True)
            except BrokenPipeError:
                raise self._failed("ended") from None

    def answers(self) -> list[Any]:
        """All answers to what was told."""
        watchdog = threading.Timer(PATIENCE, self._kill)
        watchdog.start()
        try:
            lines = [process.stdout.readline() for process in self._processes if process.stdout is not None]
        finally:
            watchdog.cancel()
        if not all(lines):
            raise self._failed("did not answer")
        return [json.loads(line) for line in lines]

    def _failed(self, what: str) -> Failed:
        self._log.flush()
        last = (self.folder / "log").read_text().splitlines()[-12:]
        return Failed("\n".join([f"a process {what}; printed last:", *last]))

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def excused(name: str, failed: dict[str, str]) -> Iterator[None]:
    """Who fails in this block is out of the bench, and the reason is kept."""
    try:
        yield
    except Failed as failure:
        say(f"{name} failed")
        failed[name] = str(failure)


def span(answers: Sequence[Mapping[str, float]]) -> float:
    """Seconds from the first beginning to the last end, per exchange or step; answers as `serving.timed` gives them."""
    return (max(a["ended"] for a in answers) - min(a["began"] for a in answers)) / answers[0]["count"]


@dataclass(frozen=True)
class Spread:
    """Of all times taken: median, least, most."""

    median: float
    least: float
    most: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(median(values), min(values), max(values), len(values))

    def text(self, unit: float = 1e-3, digits: int = 1) -> str:
        """In units of so many seconds."""
        low, mid, high = (f"{value / unit:.{digits}f}" for value in (self.least, self.median, self.most))
        return f"{mid} ({low} to {high})"


def alternate(
    contenders: Sequence[Contender], size: int, turns: int, measure: Callable[[Crew], Mapping[str, list[float]]]
) -> dict[str, dict[str, list[float]] | str]:
    """Run all contenders in turn, so many times. `measure` gives named lists of figures; a failure gives its reason."""
    found: dict[str, dict[str, list[float]] | str] = {c.name: c.missing or {} for c in contenders}
    for turn in range(turns):
        for contender in contenders:
            so_far = found[contender.name]
            if isinstance(so_far, str):
                continue
            say(f"{size} processes, turn {turn + 1} of {turns}: {contender.name}")
            try:
                with Crew(contender, size) as crew:
                    crew.ready()
                    for name, figures in measure(crew).items():
                        so_far.setdefault(name, []).extend(figures)
            except Failed as failure:
                found[contender.name] = str(failure)
    return found


# --- what is printed -------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """How far it is: for people, beside the table."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, object]:
    """What the figures were taken on, and with."""
    names = ("torch", "pyzmq", "numpy", "msgpack", "starlings")
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        **{name: _version(name) for name in names},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "from the source tree"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


@dataclass(frozen=True)
class Table:
    """`rows` are of text; the first column is the name."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def print(self) -> None:
        widths = [max(len(row[i]) for row in [self.columns, *self.rows]) for i in range(len(self.columns))]
        print(f"\n{self.title}")
        for row in [self.columns, *self.rows]:
            print(
                "  ".join(
                    cell.ljust(width) if i == 0 else cell.rjust(width)
                    for i, (cell, width) in enumerate(zip(row, widths, strict=True))
                )
            )
        for note in self.notes:
            print(f"  {note}")


@dataclass(frozen=True)
class Target:
    """What a figure should be: at most so much (or at least). `got` None: it could not be measured."""

    what: str
    wanted: float
    got: float | None
    least: bool = False

    @property
    def held(self) -> str:
        if self.got is None or math.isnan(self.got):
            return "not measured"
        return "yes" if (self.got >= self.wanted if self.least else self.got <= self.wanted) else "no"

    def row(self) -> tuple[str, ...]:
        """Name, what is wanted, what was got, whether it holds."""
        sign = "at least" if self.least else "at most"
        return self.what, f"{sign} {self.wanted:g}", "" if self.got is None else f"{self.got:.3g}", self.held


def targets(wanted: Sequence[Target]) -> Table:
    """The table of what was aimed at."""
    return Table("Targets", ("figure", "wanted", "got", "held"), [target.row() for target in wanted])


def publish(name: str, args: argparse.Namespace, tables: Sequence[Table], figures: object) -> None:
    """Print the tables; with --json, write them and all figures to that file."""
    where = machine()
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    for table in tables:
        table.print()
    if args.json:
        settings = {key: value for key, value in vars(args).items() if key not in ("json", "cache")}
        content = {
            "bench": name,
            "command": f"python scripts/bench/{name}.py",
            "settings": {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()},
            "machine": where,
            "tables": [asdict(table) for table in tables],
            "figures": figures,
        }
        args.json.write_text(json.dumps(finite(content), indent=1) + "\n")


def heed() -> None:
    """From now on the first SIGTERM ends this process as an exception would: `with` blocks end what they began."""

    def leave(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(143)

    signal.signal(signal.SIGTERM, leave)


def parser(text: str | None) -> argparse.ArgumentParser:
    """With what every bench takes. Told to end (SIGTERM), a bench ends its processes first."""
    heed()
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", type=Path, help="write tables and figures to this file")
    made.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "starlings-bench", help="peers' environments")
    return made
