"""How the state of others arrives, for people: a bar on a terminal, lines in the log elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

log = logging.getLogger("starlings")

EVERY = 1.0
"""Seconds between two lines, and before the first sign of life: a state that is there sooner needs none."""


class Arrival:
    """Told how it goes by the agent's loop; `close` takes the bar away."""

    def __init__(self) -> None:
        self._began = self._said = time.monotonic()
        self._bar: tuple[Progress, TaskID] | None = None

    def __call__(self, here: int, total: int, donors: int) -> None:
        """So many of the bytes have come, from so many donors."""
        now = time.monotonic()
        if now - self._began < EVERY:
            return
        if sys.stderr.isatty():
            self._draw(here, total, donors)
        elif now - self._said >= EVERY:
            self._said = now
            rate = here / (now - self._began) / 1e6
            log.info("state: %.1f of %.1f MB, %.1f MB/s from %d donors", here / 1e6, total / 1e6, rate, donors)

    def close(self) -> None:
        """All is here, or nothing more will come."""
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None

    def _draw(self, here: int, total: int, donors: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
            progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar = (progress, progress.add_task("state", total=total))
            progress.start()
        progress, task = self._bar
        progress.update(task, completed=here, description=f"state from {donors} donors")
