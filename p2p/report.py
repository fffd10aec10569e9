"""What a node says about itself: the report of a step, the event log, the counters.

The event log is a file of JSON lines, one per event, which the launcher's live view and summary read while it grows:

    start      index, id, address, pid, step     the node is in the swarm
    step       seconds and a StepReport's fields  one step, local update and meeting included
    log        phase, step, scalars               node.log(); the phase is "training", or "average" after consensus()
    member     node, before, after, reason        the view changed
    consensus  steps, distance, done, missing     consensus() returned
    end        steps, seconds, sent, received     the node left

Each line also has `time` (seconds, the log's clock) and `event`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

_logger = logging.getLogger("starlings")

FLUSH_INTERVAL = 0.25
"""Seconds between two writes to the file."""
BUFFER_LINES = 4096
"""Lines held between two writes; beyond it the oldest are dropped, and their number is logged."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step exchanged. Nodes are given by their short ids."""

    step: int
    round: int  # the node's own count of exchanges
    partners: tuple[str, ...]  # exchanged with since the last step
    sent: int  # bytes since the last step
    received: int
    staleness: float  # steps: mean lag of the partners behind this node; negative where they are ahead
    wait: float  # seconds that this step waited for others
    distance: float  # consensus distance: estimated root mean square of the difference to the partners
    skipped: tuple[str, ...]  # missed the deadline of this round
    slow: tuple[str, ...]  # too slow too often: not waited for, or paused
    mixing_interval: float  # steps between two own exchanges of one block
    far: tuple[str, ...] = ()  # their models have been far beyond the others' again and again, or not finite
    rate: float = 0.0  # effective learning rate, from how the own gradient agrees with the swarm's; measured every 20 steps


_REPORTED = [field.name for field in fields(StepReport)]


def step_fields(report: StepReport, seconds: float) -> dict[str, object]:
    """Of a step event."""
    return {"seconds": seconds, **{name: getattr(report, name) for name in _REPORTED}}


class EventLog:
    """Appends events to `path` as JSON lines; `None` discards them.

    `write` only buffers, and may be called by any thread; `flush` writes whole lines in one call, so a killed node
    leaves no half-written one behind. `clock` gives the seconds that each line is stamped with.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float]) -> None:
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._clock = clock
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._written = -math.inf
        self._lock = threading.Lock()

    def write(self, event: str, **fields: object) -> None:
        """Buffers one event. Fields are what JSON knows; numbers that aren't finite become null."""
        if self._file is None:
            return
        line = _line({"time": self._clock(), "event": event, **fields})
        with self._lock:
            self._lines.append(line)
            if len(self._lines) > BUFFER_LINES:
                self._lines.popleft()
                self._dropped += 1

    def step(self, report: StepReport, seconds: float) -> None:
        """Buffers a step event; `seconds` is how long the whole step took."""
        if self._file is not None:
            self.write("step", **step_fields(report, seconds))

    def flush(self) -> None:
        """Writes what is buffered, at most once per FLUSH_INTERVAL: cheap to call at every step."""
        if 0 <= self._clock() - self._written < FLUSH_INTERVAL:
            return
        with self._lock:
            self._drain()

    def close(self) -> None:
        """Writes the rest and closes the file; later events are discarded, a second call does nothing."""
        with self._lock:
            self._drain()
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _drain(self) -> None:
        if self._file is None or not self._lines:
            return
        if self._dropped:
            self._lines.append(json.dumps({"time": self._clock(), "event": "dropped", "count": self._dropped}))
        data = "".join(f"{line}\n" for line in self._lines).encode()
        self._lines.clear()
        self._dropped = 0
        self._written = self._clock()
        try:
            os.write(self._file, data)
        except OSError as error:  # a full disk ends the log, never the training
            _logger.error("event log closed: %s; free some space, or give another STARLINGS_RUN_DIR", error)
            os.close(self._file)
            self._file = None


def _line(fields: dict[str, object]) -> str:
    try:
        return json.dumps(fields, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(finite(fields), separators=(",", ":"))


def finite(value: object) -> object:
    """JSON has no NaN and no infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


class Metrics:
    """Named counters that only grow, each with one label: `messages_rejected` by reason, `non_finite` by tensor name ..."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, label: str = "", by: float = 1) -> None:
        """Counts one more of `name`; any thread."""
        with self._lock:
            self._counts[name, label] += by  # type: ignore[assignment]  # typeshed knows whole counts only

    def snapshot(self) -> dict[tuple[str, str], float]:
        """All counts so far, by (name, label)."""
        with self._lock:
            return dict(self._counts)
