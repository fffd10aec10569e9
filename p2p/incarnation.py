"""A node's incarnation, kept beside its key: started again, it begins above all that it ever said, whatever its clock says."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from p2p.agent.records import DAY, boot_incarnation

log = logging.getLogger("starlings")

DIGITS = 20
"""Of the largest number that fits in 64 bits; a longer file is none of ours."""


class Incarnation:
    """One file with one number, whole or not at all; without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._failed = False

    def next(self, wall_milliseconds: int) -> int:
        """The first one of this start: one more than the last that was kept, and at least the time; kept from now on."""
        found = boot_incarnation(self._sound(wall_milliseconds), wall_milliseconds)
        self.keep(found)
        return found

    def keep(self, incarnation: int) -> None:
        """It is about to be said. Where it can't be written, a warning says so, once, and the node goes on."""
        if self._path is None:
            return
        part = self._path.with_name(f".{self._path.name}.part")
        try:
            part.write_text(f"{incarnation}\n")
            os.replace(part, self._path)
        except OSError as error:
            if not self._failed:
                log.warning("incarnation file %s can't be written: %s; started again, the clock decides", self._path, error)
            self._failed = True

    def _sound(self, now: int) -> int:
        """The one that was kept; -1 where there is none, or one that others would refuse."""
        text = self._text()
        if not text:
            return -1
        kept = int(text) if text.isascii() and text.isdigit() else -1
        if 0 <= kept <= now + DAY:
            return kept
        log.warning(
            "incarnation file %s is passed over: %r is no number, or more than a day ahead of the clock (set the clock)",
            self._path,
            text,
        )
        return -1

    def _text(self) -> str:
        if self._path is None or not self._path.exists():
            return ""
        try:
            with self._path.open("rb") as file:
                return file.read(DIGITS + 2).decode("ascii", "replace").strip()
        except OSError as error:
            log.warning("incarnation file %s can't be read: %s", self._path, error)
            return ""
