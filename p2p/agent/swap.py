"""One swap: what the machine says, what it keeps while the swap is open, what it counts, and what it asks of the limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Opened:
    """Instruction: send blocks `first` .. `first + count - 1` to `partner`, as a request to swap at most at `weight`."""

    partner: str
    exchange: int
    first: int
    count: int
    weight: float
    at: float


@dataclass(frozen=True, slots=True)
class Repeat:
    """Instruction: ask `partner` for the answer of `exchange` again, by the header alone."""

    partner: str
    exchange: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with a request: mix the blocks whose bit is set, at `weight`; or send the kept `answer` again."""

    accepted: int
    weight: float
    answer: object | None = None


@dataclass(slots=True)
class Open:
    """An own swap under way."""

    opened: Opened
    nbytes: int
    holds: bool = True
    again: float = 0.0  # when to repeat the request
    pause: float = 0.0
    bounds: tuple[float, ...] = ()  # as told the partner, per block


@dataclass(slots=True)
class Tally:
    """What happened, for reports."""

    swapped: int = 0
    declined: int = 0
    overdue: int = 0
    repeated: int = 0
    moved: int = 0  # blocks whose answer never came: the mean may have moved
    forgotten: int = 0  # kept answers dropped for want of room


class Limits(Protocol):
    """What the user lets pass to a partner."""

    def clear(self, node: str, now: float) -> bool:
        """Whether a message may leave now."""

    def opens(self, node: str) -> float:
        """When the next one may."""

    def rate(self, node: str) -> float:
        """Bytes a second."""
