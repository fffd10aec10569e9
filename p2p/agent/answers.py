"""What a node remembers of others' requests: which it has seen, and its answers to them until they are known to have come."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

REMEMBERED = 4096
"""Nodes whose newest exchange is remembered, those that are gone included."""
OVERHEAD = 1024
"""Bytes that a kept answer takes beside its payload, about: many small ones are bounded too."""


@dataclass(slots=True)
class Shelf:
    """One partner's kept answers, oldest first."""

    answers: dict[int, tuple[int, object]] = field(default_factory=dict)  # exchange -> (bytes, answer)
    nbytes: int = 0

    def take(self, exchange: int) -> object:
        nbytes, answer = self.answers.pop(exchange)
        self.nbytes -= nbytes
        return answer


class Answers:
    """Exchange ids of one partner only grow: what is not above the newest seen is never mixed again, only answered again."""

    def __init__(self, room: int) -> None:
        """`room`: bytes kept per partner at most (one answer is always kept)."""
        self._room = room
        self._seen: dict[str, int] = {}
        self._shelves: dict[str, Shelf] = {}

    def find(self, partner: str, exchange: int) -> object | None:
        """The kept answer to this request."""
        shelf = self._shelves.get(partner)
        found = shelf.answers.get(exchange) if shelf else None
        return found[1] if found else None

    def first(self, partner: str, exchange: int) -> bool:
        """Whether this request is new; it is not from now on."""
        if exchange <= self._seen.get(partner, -1):
            return False
        self._seen[partner] = exchange
        return True

    def keep(self, partner: str, exchange: int, nbytes: int, answer: object) -> list[object]:
        """Keep an answer until its receipt; returns older ones that had to go for want of room."""
        shelf = self._shelves.setdefault(partner, Shelf())
        shelf.answers[exchange] = nbytes + OVERHEAD, answer
        shelf.nbytes += nbytes + OVERHEAD
        dropped = []
        while shelf.nbytes > self._room and len(shelf.answers) > 1:
            dropped.append(shelf.take(next(iter(shelf.answers))))
        return dropped

    def settled(self, partner: str, exchanges: Sequence[int]) -> list[object]:
        """The partner has these answers; returns them, so that their memory is freed."""
        shelf = self._shelves.get(partner, Shelf())
        return [shelf.take(e) for e in dict.fromkeys(exchanges) if e in shelf.answers]

    def partners(self, live: Container[str]) -> list[object]:
        """Drop the answers to who is gone, and return them. Their ids stay known while there is room: they may come back."""
        gone = [shelf for p, shelf in self._shelves.items() if p not in live]
        self._shelves = {p: shelf for p, shelf in self._shelves.items() if p in live}
        if len(self._seen) > REMEMBERED:
            self._seen = {p: newest for p, newest in self._seen.items() if p in live}
        return [answer for shelf in gone for _, answer in shelf.answers.values()]

    def validate_state(self) -> None:
        """Raises AssertionError where it contradicts itself."""
        for partner, shelf in self._shelves.items():
            assert shelf.nbytes == sum(nbytes for nbytes, _ in shelf.answers.values())
            assert shelf.nbytes <= self._room or len(shelf.answers) == 1
            assert all(exchange <= self._seen[partner] for exchange in shelf.answers)
