"""A process of a bench: it waits for a word on its standard input, acts, and answers with a line of JSON.

Only the standard library, so that it runs in any peer's virtual environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PATIENCE = 120.0
"""Seconds that a process waits for what another one of its crew posts."""


def serve(actions: Mapping[str, Callable[[], object]]) -> None:
    """Answer words until the input ends. What a peer's library prints goes to the standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(actions[line.strip()]()), file=answers, flush=True)


def timed(work: Callable[[], object], count: int = 1) -> dict[str, float]:
    """When it began and ended, on a clock that all processes of a machine share; it did `count` exchanges, or steps."""
    began = time.monotonic()
    work()
    return {"began": began, "ended": time.monotonic(), "count": count}


def post(folder: Path, name: str, text: str) -> None:
    """Leave a note for the rest of the crew."""
    part = folder / f"{name}.part"
    part.write_text(text)
    part.replace(folder / name)


def fetch(folder: Path, name: str) -> str:
    """Another process's note; raises TimeoutError where it never comes."""
    deadline = time.monotonic() + PATIENCE
    while not (folder / name).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody posted {name}")
        time.sleep(0.02)
    return (folder / name).read_text()
