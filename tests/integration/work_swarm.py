"""Processes that share out work, and what they have written down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 90.0


@dataclass(frozen=True)
class Job:
    """What one worker does. `pace`: seconds it waits per sample; `burn`: matrix products per sample instead."""

    length: int = 1920
    chunk: int = 16
    batch: int = 16
    epochs: int = 1
    pace: float = 0.005
    burn: int = 0
    workers: int = 0
    cpu: int | None = None
    wait_for: int = 1
    stop: int | None = None
    checkpoint: str | None = None
    micro: int | None = None
    global_: str | None = None


class Worker:
    """One process and its ledger."""

    def __init__(self, job: Job, ledger: Path, peers: list[str]) -> None:
        self.job = job
        self.ledger = ledger
        values = {**asdict(job), "global": job.global_, "ledger": str(ledger), "peers": peers}
        ledger.touch()
        self.output = open(f"{ledger}.out", "w")  # noqa: SIM115 (closed with the swarm)
        program = ROOT / "tests/integration/nodes/worker.py"
        environ = {k: v for k, v in os.environ.items() if not k.startswith("STARLINGS_")}
        environ |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(program), json.dumps(values)], stdout=self.output, stderr=subprocess.STDOUT, env=environ
        )

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has written, whole lines only."""
        text = self.ledger.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    @property
    def seen(self) -> list[int]:
        return [number for line in self.lines for number in line.get("seen", ())]

    def of(self, key: str) -> list[Any]:
        """All that stands under this key, in order."""
        return [line[key] for line in self.lines if key in line]

    @property
    def address(self) -> str:
        wait(lambda: bool(self.of("address")), self)
        return str(self.of("address")[0])

    @property
    def ends(self) -> dict[int, float]:
        """When its first pass over each epoch ended."""
        return {line["ended"]: line["t"] for line in reversed(self.lines) if "ended" in line}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class WorkSwarm:
    """Workers of one job; all are gone at the end of the `with` block."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.folder = folder
        self.job = job
        self.workers: list[Worker] = []

    def start(self, count: int, **changes: Any) -> list[Worker]:
        """So many more, each joining by the first."""
        new = []
        for _ in range(count):
            peers = [self.workers[0].address] if self.workers else []
            ledger = self.folder / f"ledger-{len(self.workers)}.jsonl"
            new.append(Worker(replace(self.job, **changes), ledger, peers))
            self.workers.append(new[-1])
        return new

    def finish(self) -> None:
        """Until all that live are through."""
        for worker in self.workers:
            if worker.process.poll() is None or worker.process.returncode >= 0:
                wait(lambda worker=worker: worker.process.poll() is not None, worker)  # type: ignore[misc]
                assert worker.process.returncode == 0, Path(f"{worker.ledger}.out").read_text()

    @property
    def counts(self) -> Counter[int]:
        """How often each sample was processed, by anybody."""
        return Counter(number for worker in self.workers for number in worker.seen)

    def doubled(self) -> int:
        """Samples processed more than once."""
        return sum(times > self.job.epochs for times in self.counts.values())

    def __enter__(self) -> WorkSwarm:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()
            worker.output.close()


def wait(condition: Callable[[], bool], worker: Worker) -> None:
    """Until it holds; what the worker said, if it doesn't in time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        dead = worker.process.poll() not in (None, 0)
        if dead or time.monotonic() > deadline:
            raise AssertionError(f"{'it died' if dead else 'too late'}: " + Path(f"{worker.ledger}.out").read_text())
        time.sleep(0.02)
