"""What becomes of momentum: left alone, shared, tracked, or replaced by one that follows the mixed model.

With unlike data, each node's own gradients pull its model, and its momentum, away from the others'. Sharing the momentum
makes all but the newest gradient common; tracking it takes the rest away, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from optim.algorithm import Algorithm, Step, Vector
from optim.tracked import VECTORS, steer
from topology import SpecError


@dataclass(frozen=True)
class WithMomentum(Algorithm):
    """An algorithm on which momentum is `local`, `shared`, `tracked` (see `optim.tracked`) or `quasi-global`.

    `tracked` forgets a share of `forget` of what others brought, per step: little learns sooner, much is steadier.
    `quasi-global` brings its own momentum (the optimizer's must be off): `beta` is its share of a step, `mu` its memory.
    """

    momentum: Literal["shared", "tracked", "local", "quasi-global"] = "shared"  # type: ignore[assignment]  # two more
    forget: float = 0.03
    beta: float = 0.9
    mu: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.forget < 1:
            raise SpecError(f"{self.name}: forget is {self.forget}; at least 0 and less than 1 is expected")

    @property
    def shares_state(self) -> bool:
        """Whether the optimizer's state travels."""
        return self.momentum in ("shared", "tracked")

    @property
    def quasi_global(self) -> bool:
        return self.momentum == "quasi-global"

    @property
    def tracked(self) -> bool:
        return self.momentum == "tracked"

    @property
    def partial(self) -> bool:  # type: ignore[override]
        """Where it is not tracked, momentum is still shared."""
        return self.tracked

    @property
    def plain(self) -> bool:  # type: ignore[override]
        """Made for SGD without momentum of its own."""
        return self.quasi_global

    def vectors(self) -> tuple[Vector, ...]:
        """The momentum and the model before the step; or what others brought."""
        if self.quasi_global:
            return Vector("momentum"), Vector("start")
        return VECTORS if self.tracked else ()

    def before(self, s: Step) -> None:
        """Quasi-global: g <- g + beta m. Tracked: see `steer`."""
        if self.quasi_global:
            torch._foreach_add_(s.g, s["momentum"], alpha=self.beta)
            torch._foreach_copy_(s["start"], s.x)
        elif self.tracked:
            steer(s, self.forget)

    def mixed(self, s: Step) -> None:
        """Quasi-global: m <- mu m + (1 - mu) (x_before - x) / lr; at rate 0 nothing has moved by itself, and m stays."""
        if self.quasi_global and s.lr:
            moved = torch._foreach_sub(s["start"], s.x)
            torch._foreach_mul_(s["momentum"], self.mu)
            torch._foreach_add_(s["momentum"], moved, alpha=(1 - self.mu) / s.lr)
