"""What happened between two steps of a trainer, gathered by the agent's loop and taken by the trainer's thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field
from statistics import median

from p2p.net.messages import Pulse

RECENT = 32
"""Steps whose samples make the mean: some are heard of a step early or late."""


@dataclass(slots=True)
class Activity:
    """Since the last step. `lag`: summed steps that partners were behind."""

    partners: dict[str, int] = field(default_factory=dict)  # node -> its step as heard
    squared: float = 0.0  # summed squared differences of parameters to partners
    elements: int = 0  # over so many of them
    skipped: tuple[str, ...] = ()

    def met(self, partner: str, pulse: Pulse) -> None:
        """An exchange with this partner took place."""
        self.partners[partner] = pulse.step

    def differed(self, squared: float, elements: int) -> None:
        """Parameters differed by this much from a partner's."""
        self.squared += squared
        self.elements += elements

    def distance(self) -> float | None:
        """Root mean square difference to the partners; None where nothing was compared."""
        return (self.squared / self.elements) ** 0.5 if self.elements else None

    def staleness(self, step: int) -> float:
        """Mean number of steps that the partners are behind."""
        return step - sum(self.partners.values()) / len(self.partners) if self.partners else 0.0


class Pace:
    """Seconds per step: the own, the partners' as heard, and the neighbourhood's, which is the median of both."""

    def __init__(self) -> None:
        self.step = 0
        self.span = 1.0  # an own step, in step times of the neighbourhood
        self.samples = 0.0  # per step, a moving mean; 0 where they are not counted
        self._worked: deque[int] = deque(maxlen=RECENT)
        self._last: float | None = None
        self._own: deque[float] = deque(maxlen=16)
        self.own = 0.0
        """The median of the last steps; 0 before two of them."""
        self._theirs: dict[str, float] = {}

    @property
    def pulse(self) -> Pulse:
        return Pulse(self.step, self.own, self.samples)

    def stepped(self, step: int, now: float) -> None:
        """The trainer finished a step."""
        if self._last is not None:
            self._own.append(now - self._last)
            self.own = median(self._own)
            self.span = self.own / around if (around := self.neighbourhood()) else 1.0
        self._last, self.step = now, step

    def worked(self, samples: int) -> None:
        """The step that is over was taken on so many samples."""
        if samples or self._worked:
            self._worked.append(samples)
            self.samples = sum(self._worked) / len(self._worked)

    def heard(self, partner: str, pulse: Pulse) -> None:
        if 0 < pulse.pace < 1e6:
            self._theirs[partner] = pulse.pace

    def keep(self, members: Container[str]) -> None:
        """Forget those who are gone."""
        self._theirs = {p: pace for p, pace in self._theirs.items() if p in members}

    def neighbourhood(self) -> float:
        """0 before anybody has a pace."""
        own = [self.own] if self._own else []
        paces = [*own, *self._theirs.values()]
        return median(paces) if paces else 0.0


class Calm:
    """How many of its last exchanges each parameter block has differed by less than a tolerance: the end of consensus."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._limit = 0.0
        self._runs: dict[int, int] = {}

    def begin(self, limit: float) -> None:
        """Count from now on; `limit` is a mean square difference."""
        self._limit, self._runs = limit, {}

    def differed(self, block: int, mean_square: float) -> None:
        self._runs[block] = self._runs.get(block, 0) + 1 if mean_square <= self._limit else 0

    @property
    def exchanges(self) -> int:
        """So many exchanges in a row were calm, of the block that has fewest."""
        return min(self._runs.values()) if len(self._runs) == self._blocks and self._runs else 0
