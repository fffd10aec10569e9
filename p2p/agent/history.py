"""What happened to each block lately, for who asks why: bounded, and cheap enough to be kept always."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

EVENTS = 4096
"""So many are kept, all blocks together."""


class Event(NamedTuple):
    """Blocks `first` .. `stop - 1`: what happened, with which partner; `distance` where they were compared."""

    time: float
    what: str  # asks, has no room for, declines, is declined by, pushes to, mixes with, refuses what is not finite of ...
    partner: str  # node id
    first: int
    stop: int
    distance: float | None  # root mean square


class History:
    """One exchange's; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._events: deque[Event] = deque(maxlen=EVENTS)

    def note(self, what: str, partner: str, first: int, count: int = 1, distance: float | None = None) -> None:
        """Any thread."""
        self._events.append(Event(self.clock(), what, partner, first, first + count, distance))

    def story(self, block: int) -> list[Event]:
        """Of one block, the oldest first; any thread."""
        return [event for event in self._events.copy() if event.first <= block < event.stop]
