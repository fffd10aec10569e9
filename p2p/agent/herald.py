"""When news of work is sent, and to whom: at once, but never faster than the interval, until all should have heard it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

from p2p.config import WorkConfig


class Herald:
    """Counts, for each piece of news, how many rounds still carry it; a round goes to `fanout` members in shuffled turn."""

    def __init__(self, config: WorkConfig, rng: random.Random, now: float) -> None:
        self._config = config
        self._rng = rng
        self._others: list[str] = []
        self._turn: list[str] = []
        self._rounds: dict[str, int] = {}  # piece of news -> rounds that still carry it
        self._sent = self._rushed = now - config.interval
        self._urgent = False
        self._refreshed = now

    def seat(self, others: Iterable[str]) -> None:
        """The members to tell."""
        self._others = sorted(others)
        self._turn = []

    @property
    def depth(self) -> int:
        """Rounds until all have heard, if none is lost."""
        return max(1, math.ceil(math.log(len(self._others) + 1) / math.log(1 + self._config.fanout)))

    @property
    def wake(self) -> float:
        """When the next round is due; infinity for a node alone."""
        if not self._others:
            return math.inf
        refresh = self._refreshed + self._config.refresh
        return min(self._due, refresh) if self._rounds else refresh

    @property
    def _due(self) -> float:
        sent = min(self._sent, self._rushed) if self._urgent else self._sent
        return sent + self._config.interval

    def tell(self, piece: str, urgent: bool = False) -> None:
        """There is news of this name; what is urgent doesn't wait for the turn of what is not, only for its own."""
        self._rounds[piece] = 2 * self.depth
        self._urgent |= urgent

    def round(self, now: float) -> tuple[set[str], list[str]]:
        """What to send and to whom, if a round of news is due now; else nobody."""
        if not self._rounds or now < self._due:
            return set(), []
        if self._urgent:
            self._urgent, self._rushed = False, now
        pieces = set(self._rounds)
        self._rounds = {piece: left - 1 for piece, left in self._rounds.items() if left > 1}
        self._sent = now
        return pieces, [self._next() for _ in range(min(self._config.fanout, len(self._others)))]

    def refresh(self, now: float) -> str | None:
        """Who is to be told everything now, if anybody."""
        if not self._others or now < self._refreshed + self._config.refresh:
            return None
        self._refreshed = now
        return self._rng.choice(self._others)

    def _next(self) -> str:
        if not self._turn:
            self._turn = self._rng.sample(self._others, len(self._others))
        return self._turn.pop()
