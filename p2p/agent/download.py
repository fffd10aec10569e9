"""The machine of a download: which blocks are asked of which donor, what is asked again, who is given up. No I/O, no clock.

Each bundle of blocks is fetched once, from whichever donor has room for one more request. A donor that falls silent
is asked again, then given up, and its bundles go to the others; towards the end, who has nothing left to do fetches
what a slower one still owes. All waits count from the last block that came.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

WINDOW = 4
"""Bundles asked of one donor ahead; one at first, one more with each that came."""
LOOK = 0.5
"""Seconds without a block after which, at the earliest, those under way are asked for again."""
PATIENCE = 4
"""... or so many times as long as the donor's last bundle took."""
STRIKES = 3
"""Spoilt bundles after which a donor is given up."""
BREAKS = 3
"""Lost connections in a row after which it is."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Instruction: ask `donor` for `count` blocks from `first`."""

    donor: str
    first: int
    count: int


@dataclass(slots=True)
class Source:
    """What is known of a donor."""

    heard: float
    open: dict[int, float] = field(default_factory=dict)  # first block -> when it was asked for
    window: int = 1
    pace: float = 0.0  # seconds that its last bundle took; 0: none came yet
    asked_again: float = 0.0
    spoilt: set[int] = field(default_factory=set)
    breaks: int = 0


class Download:
    """`bundles` are (first block, count); a donor is given up after `progress` seconds without a block."""

    def __init__(self, bundles: Sequence[tuple[int, int]], progress: float) -> None:
        self.counts = dict(bundles)
        self.sources: dict[str, Source] = {}
        self.spoilt = 0  # bundles that were not what their manifest said
        self.doubled = 0  # bundles that came twice
        self._progress = progress
        self._todo = deque(self.counts)
        self._missing = set(self.counts)

    @property
    def done(self) -> bool:
        return not self._missing

    @property
    def arrived(self) -> int:
        """Bundles that are here."""
        return len(self.counts) - len(self._missing)

    def add(self, donor: str, now: float) -> None:
        """One more to take from."""
        self.sources[donor] = Source(now, asked_again=now)

    def lose(self, donor: str) -> None:
        """It is gone, or given up: what it owes is for the others."""
        source = self.sources.pop(donor, None)
        if source is not None:
            self._give_back(source)

    def broke(self, donor: str) -> None:
        """Its connection was lost, with what was under way."""
        source = self.sources.get(donor)
        if source is None:
            return
        source.breaks += 1
        if source.breaks >= BREAKS:
            self.lose(donor)
        else:
            self._give_back(source)

    def wants(self, donor: str, first: int, count: int) -> bool:
        """Whether this was asked of the donor; to be called before a bundle is looked at."""
        source = self.sources.get(donor)
        return source is not None and first in source.open and self.counts[first] == count

    def received(self, donor: str, first: int, now: float) -> bool:
        """A bundle that was wanted came, and is what it should be. False where it is here already."""
        source = self.sources[donor]
        source.pace = now - source.open.pop(first)
        source.heard = source.asked_again = now
        source.window, source.breaks = min(source.window + 1, WINDOW), 0
        if first not in self._missing:
            self.doubled += 1
            return False
        self._missing.discard(first)
        return True

    def refused(self, donor: str, first: int) -> None:
        """What came isn't what the manifest says: it is fetched from another, where there is one."""
        source = self.sources[donor]
        del source.open[first]
        source.spoilt.add(first)
        self.spoilt += 1
        self._again(first)
        if len(source.spoilt) >= STRIKES or len(self.sources) == 1:
            self.lose(donor)

    def unsent(self, fetch: Fetch) -> None:
        """There was no room, or no way; it is asked for at the next tick."""
        del self.sources[fetch.donor].open[fetch.first]
        self._again(fetch.first)

    def tick(self, now: float) -> list[Fetch]:
        """What to ask now; donors that were silent for too long are given up."""
        for donor, source in list(self.sources.items()):
            if now - source.heard >= self._progress:
                self.lose(donor)
            elif source.open and now - source.asked_again >= self._silence(source):
                source.asked_again = now
                self._give_back(source)
        return [fetch for donor in self.sources for fetch in self._fill(donor, now)]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _silence(self, source: Source) -> float:
        """Seconds of silence after which a donor is asked again: unknown at first, for a thin link takes its time."""
        return max(LOOK, PATIENCE * source.pace) if source.pace else max(LOOK, self._progress / 4)

    def _fill(self, donor: str, now: float) -> Iterator[Fetch]:
        source = self.sources[donor]
        while len(source.open) < source.window:
            first = self._next(source) if self._todo else self._owed(source, now)
            if first is None:
                return
            source.open[first] = now
            yield Fetch(donor, first, self.counts[first])

    def _next(self, source: Source) -> int | None:
        """The next bundle that nobody was asked for, and that this donor has not spoilt."""
        for _ in range(len(self._todo)):
            first = self._todo.popleft()
            if first not in source.spoilt and first in self._missing:
                return first
            if first in self._missing:
                self._todo.append(first)
        return None

    def _owed(self, source: Source, now: float) -> int | None:
        """Nothing is left: what another donor has owed longest, if that is twice as long as this one takes."""
        if not source.pace or source.open:
            return None
        asked: dict[int, float] = {}
        for other in self.sources.values():
            for first, at in other.open.items():
                asked[first] = max(asked.get(first, -math.inf), at)
        owed = [first for first in asked if first in self._missing and first not in source.spoilt]
        longest = min(owed, key=asked.__getitem__, default=None)
        return longest if longest is not None and now - asked[longest] >= 2 * source.pace else None

    def _give_back(self, source: Source) -> None:
        for first in reversed([*source.open]):
            self._again(first)
        source.open.clear()

    def _again(self, first: int) -> None:
        if first in self._missing and first not in self._todo:
            self._todo.appendleft(first)
