"""`pga`: gossip in every step, and an exact average in every so-manieth.

Chen et al., "Accelerating Gossip SGD with Periodic Global Averaging" (2021): x <- W (x - lr g), but x <- mean (x - lr g) every
H steps. Here the average is one cycle of a topology whose rounds multiply to it, one after the other within the step: each
node still talks with as few at a time as in any round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from optim.gossip import Gossip
from optim.registry import register
from optim.synchronous import Turn
from topology import SpecError


@register("pga")
@dataclass(frozen=True)
class PeriodicAverage(Gossip):
    """The average comes every `every` steps; moments are averaged along, where they are shared."""

    needs: ClassVar[frozenset[str]] = frozenset({"doubly_stochastic", "finite_time"})

    every: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1 or self.overlap:
            raise SpecError(f"{self.name}: every is {self.every}, overlap {self.overlap}; at least 1 and no are expected")

    def turn(self, round: int, cycle: int) -> Turn:
        """`every` - 1 steps of one round each, going on where the last ones left off; then a cycle from its beginning."""
        alone = self.every - 1
        times, place = divmod(round, alone + cycle)
        return Turn(times * alone + place) if place < alone else Turn(place - alone, last=place == alone + cycle - 1)
