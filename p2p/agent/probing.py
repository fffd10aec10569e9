"""Whom to probe next, and what is under way: SWIM's shuffled round robin, a probe, a probe on behalf of another."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


class ProbeOrder:
    """The live others, each met once per cycle; a new one enters at a random place, so no death waits two cycles."""

    LOOK_AHEAD = 8
    """So many unsuitable nodes are passed over at once."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._nodes: list[str] = []
        self._position = 0
        self._urgent: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def add(self, node: str) -> None:
        """A node that wasn't in it."""
        place = self._rng.randint(0, len(self._nodes))
        self._nodes.insert(place, node)
        self._position += place < self._position

    def discard(self, node: str) -> None:
        """A node that was in it."""
        self._urgent.pop(node, None)
        place = self._nodes.index(node)
        del self._nodes[place]
        self._position -= place < self._position

    def hasten(self, node: str) -> None:
        """A node that is in it comes before its turn, once."""
        self._urgent[node] = None

    def next(self, suitable: Callable[[str], bool]) -> str | None:
        """The next one in turn; None where nobody within reach of a look is suitable."""
        while self._urgent:
            node = next(iter(self._urgent))
            del self._urgent[node]
            if suitable(node):
                return node
        for _ in range(min(len(self._nodes), self.LOOK_AHEAD)):
            if self._position >= len(self._nodes):
                self._rng.shuffle(self._nodes)
                self._position = 0
            self._position += 1
            if suitable(self._nodes[self._position - 1]):
                return self._nodes[self._position - 1]
        return None

    def sample(self, count: int, suitable: Callable[[str], bool]) -> list[str]:
        """Up to `count` different ones at random."""
        drawn = self._rng.sample(self._nodes, min(len(self._nodes), 4 * count))
        return list(filter(suitable, drawn))[:count]


@dataclass(slots=True)
class Probe:
    """The one probe under way: sent at `began`, `helpers` were asked, some of which could not reach it either."""

    target: str
    seq: int
    began: float
    helpers: frozenset[str] = frozenset()
    nacks: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Relay:
    """A probe for somebody else, who calls it `seq`."""

    asker: str
    seq: int
    target: str
