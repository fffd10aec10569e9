"""Named moments in the future, earliest first: a heap in which what was moved or cancelled is skipped."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable

Action = Callable[[float], None]
"""What is called with the time when a timer is due."""

_Entry = tuple[float, int, Hashable, Action]


class Timers:
    """Each key has at most one timer; setting it again moves it."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._entries: dict[Hashable, _Entry] = {}
        self._count = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def set(self, key: Hashable, when: float, action: Action) -> None:
        """At `when`, or as soon after it as somebody looks."""
        self._count += 1
        entry = (when, self._count, key, action)
        self._entries[key] = entry
        heapq.heappush(self._heap, entry)

    def cancel(self, key: Hashable) -> None:
        """No more; a key without a timer is fine."""
        self._entries.pop(key, None)

    def when(self, key: Hashable) -> float:
        """When this one is due; infinity where it isn't set."""
        entry = self._entries.get(key)
        return entry[0] if entry else math.inf

    @property
    def next(self) -> float:
        """The earliest moment; infinity where nothing is set."""
        while self._heap and self._entries.get(self._heap[0][2]) is not self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def pop(self, now: float) -> Action | None:
        """The action that is due first, taken out; None where nothing is due."""
        if self.next > now:
            return None
        _, _, key, action = heapq.heappop(self._heap)
        del self._entries[key]
        return action

    def shift(self, seconds: float) -> None:
        """Move everything later."""
        moved = [(when + seconds, count, key, action) for when, count, key, action in self._entries.values()]
        self._entries = {entry[2]: entry for entry in moved}
        heapq.heapify(moved)
        self._heap = moved
