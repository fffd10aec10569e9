"""The run directory: where the nodes of one run leave their files, and what is read back from them.

node-<i>.log      output and errors of node i
node-<i>.key      its identity
node-<i>.incarnation  the number of its last word about itself
events-<i>.jsonl  its events (report.py)
swarm.secret      what admits to the swarm
nodes.json        index, pid, address and id of each node, from its start on
summary.json      how the run ended
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READ_BYTES = 256 * 1024
"""What one look at a growing file reads at most; the next look reads on."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The files of one run, by name."""

    path: Path

    @classmethod
    def new(cls, root: Path) -> RunDirectory:
        """A fresh directory below `root`, named by the time; `root/latest` is a link to it."""
        stem = time.strftime("%Y-%m-%d_%H-%M-%S")
        names = (stem if i == 0 else f"{stem}_{i}" for i in range(1000))
        path = next(path for name in names if _made(path := root / name))
        link = root / f".latest-{os.getpid()}"
        link.symlink_to(path.name)
        link.replace(root / "latest")
        return cls(path)

    @classmethod
    def at(cls, path: Path) -> RunDirectory:
        """This very directory, made if it isn't there; identities and the secret in it stay what they are."""
        path.mkdir(parents=True, exist_ok=True)
        return cls(path)

    @property
    def secret(self) -> Path:
        return self.path / "swarm.secret"

    def log(self, index: int) -> Path:
        return self.path / f"node-{index}.log"

    def events(self, index: int) -> Path:
        return self.path / f"events-{index}.jsonl"

    def write(self, name: str, content: object) -> None:
        """A JSON file, whole or not at all."""
        part = self.path / f".{name}.part"
        part.write_text(json.dumps(content, indent=2) + "\n")
        part.replace(self.path / name)


def _made(path: Path) -> bool:
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


class Tail:
    """The lines that a growing file gains from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def lines(self) -> list[str]:
        """Whole new lines, at most READ_BYTES at once; a longer line comes in pieces."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(READ_BYTES)
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) >= READ_BYTES:
            whole, self._rest = [*whole, self._rest], b""
        return [line.decode(errors="replace") for line in whole]

    def rest(self) -> list[str]:
        """All that is left, once nobody writes any more: the last line need not be whole."""
        found: list[str] = []
        while new := self.lines():
            found += new
        last, self._rest = self._rest, b""
        return [*found, last.decode(errors="replace")] if last else found


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a file, of its last READ_BYTES at most."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - READ_BYTES))
        return file.read(READ_BYTES).decode(errors="replace").splitlines()[-count:]


@dataclass(slots=True)
class NodeState:
    """What is known of one node of this run: from its process, and from its events."""

    index: int
    pid: int | None = None
    code: int | None = None  # exit code, negative for a signal; None while it runs
    id: str = ""
    address: str = ""
    step: int = 0  # the last one; a joiner's count begins at its donor's
    steps: int = 0  # done here
    seconds: float = 0.0  # in the swarm
    sent: int = 0  # bytes
    received: int = 0
    partners: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    distance: float | None = None
    training: dict[str, Any] = field(default_factory=dict)  # scalars last logged in training
    average: dict[str, Any] = field(default_factory=dict)  # ... after consensus()
    began: float | None = None

    @property
    def running(self) -> bool:
        return self.code is None

    @property
    def joined(self) -> bool:
        return self.began is not None

    def follow(self, lines: Iterable[str]) -> bool:
        """Takes in lines of the event log; whether the node started with one of them. A broken line is passed over."""
        before = self.began
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            self._apply(event)
        return self.began != before

    def _apply(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "start":
                self.began, self.id, self.address = event["time"], event["id"], event["address"]
                self.step, self.steps, self.sent, self.received = event["step"], 0, 0, 0
            case "step":
                self.step, self.partners, self.slow = event["step"], event["partners"], event["slow"]
                self.distance = event["distance"]
                self.steps += 1
                self.sent += event["sent"]
                self.received += event["received"]
            case "log":
                scalars = {name: value for name, value in event.items() if name not in ("time", "event", "phase", "step")}
                (self.average if event["phase"] == "average" else self.training).update(scalars)
            case "end":
                self.steps, self.sent, self.received = event["steps"], event["sent"], event["received"]
        if self.began is not None:
            self.seconds = event["time"] - self.began

    def identity(self) -> dict[str, object]:
        """Its line in nodes.json."""
        return {"index": self.index, "pid": self.pid, "address": self.address, "id": self.id}

    def summary(self) -> dict[str, object]:
        """Its line in summary.json."""
        return {
            "index": self.index,
            "id": self.id,
            "pid": self.pid,
            "exit_code": self.code,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "sent": self.sent,
            "received": self.received,
            "training": self.training,
            "average": self.average,
        }
