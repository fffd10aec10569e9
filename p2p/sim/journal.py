"""What happened in a run, in order: one line of text per event, the same bytes for the same seed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import partial

from p2p.net.keys import short
from p2p.report import EventLog, StepReport, step_fields

Fields = Callable[[], Mapping[str, object]]


class Journal:
    """Lines of virtual time, node, event. Node ids are written as the nodes' names."""

    def __init__(self) -> None:
        self._events: list[tuple[float, str, str, Fields]] = []
        self._names: dict[str, str] = {}  # short id -> name

    def introduce(self, node: str, name: str) -> None:
        """From now on this node id is written as `name`."""
        self._names[short(node)] = name

    def write(self, name: str, event: str, fields: Fields = dict) -> None:
        """One event of the node `name` (or of the world); put into words only when it is read."""
        self._events.append((asyncio.get_running_loop().time(), name, event, fields))

    @property
    def lines(self) -> list[str]:
        """All that happened so far."""
        return [self._line(*event) for event in self._events]

    def story(self, word: str) -> str:
        """The lines in which a name (`n3`) or a site occurs as a whole word."""
        whole = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
        return "\n".join(line for line in self.lines if whole.search(line))

    def _line(self, time: float, name: str, event: str, fields: Fields) -> str:
        text = " ".join(f"{key}={self._say(value)}" for key, value in fields().items())
        return f"{time:.6f} {name} {event} {text}".rstrip()

    def _say(self, value: object) -> str:
        if isinstance(value, float):
            return f"{value:.9g}"
        if isinstance(value, str):
            return repr(value) if " " in value else self._names.get(value, value)
        if isinstance(value, tuple):
            return f"[{','.join(map(self._say, value))}]" if value else "[]"
        return str(value)


class NodeLog(EventLog):
    """One node's event log, kept in the run's journal in place of a file."""

    def __init__(self, journal: Journal, name: str) -> None:
        super().__init__(None, lambda: 0.0)
        self._journal = journal
        self._name = name
        self.open = False  # a swarm that is given at the start has nothing to tell of it

    def write(self, event: str, **fields: object) -> None:
        if self.open:
            self._journal.write(self._name, event, lambda: fields)

    def step(self, report: StepReport, seconds: float) -> None:
        if self.open:
            self._journal.write(self._name, "step", partial(step_fields, report, seconds))

    def flush(self) -> None:
        """Nothing is held back."""
