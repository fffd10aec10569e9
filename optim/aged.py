"""`aged`, `progressive`: synchronous rounds in which a model counts by how far its node has come. They keep no mean.

The server of VC-ASGD (2021) takes the less of a client's model the older it is; here neighbours do, with the staleness
function (1 + age)^-power of Xie et al., "Asynchronous Federated Optimization" (2019). A node that fell behind then follows
the others and hardly pulls them back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from optim.registry import register
from optim.synchronous import Standing, Synchronous
from topology import SpecError

MOST = 50.0
"""Beyond this exponent one model has all the weight."""


@register("aged")
@dataclass(frozen=True)
class Aged(Synchronous):
    """w_ij (1 + age)^-power, age the steps that j is behind i; what that leaves over is the own model's."""

    power: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.power < math.inf:
            raise SpecError(f"{self.name}: power is {self.power}; at least 0 is expected")

    def weigh(self, own: Standing, others: Sequence[Standing]) -> Sequence[float]:
        """Who is ahead has no age."""
        return [other.weight * (1 + max(own.step - other.step, 0)) ** -self.power for other in others]


@register("progressive")
@dataclass(frozen=True)
class Progressive(Synchronous):
    """w_ij exp(growth t_j), t_j the steps of j, scaled so that all with the own one sum to 1: who is further counts more."""

    growth: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.growth < math.inf:
            raise SpecError(f"{self.name}: growth is {self.growth}; at least 0 is expected")

    def weigh(self, own: Standing, others: Sequence[Standing]) -> Sequence[float]:
        """By differences to the own step, which change nothing and keep numbers small."""
        grown = [other.weight * math.exp(self._exponent(other.step - own.step)) for other in others]
        total = own.weight + sum(grown)
        return [weight / total for weight in grown] if total else [0.0] * len(others)

    def _exponent(self, ahead: int) -> float:
        return max(-MOST, min(MOST, self.growth * ahead))
