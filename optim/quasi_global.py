"""Quasi-global momentum: a node's momentum follows how its *mixed* model moves, so nothing more travels.

Lin et al., "Quasi-Global Momentum" (2021): g <- g + beta m; m <- mu m + (1 - mu) (x_before - x_mixed) / lr.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from optim.algorithm import Algorithm, Step, Vector


@dataclass(frozen=True)
class WithMomentum(Algorithm):
    """An algorithm on which momentum can be shared, local or quasi-global.

    `quasi-global` brings its own (the optimizer's must be off): `beta` is its share of a step, `mu` its memory.
    """

    momentum: Literal["shared", "local", "quasi-global"] = "shared"  # type: ignore[assignment]  # one choice more
    beta: float = 0.9
    mu: float = 0.9

    @property
    def quasi_global(self) -> bool:
        return self.momentum == "quasi-global"

    @property
    def plain(self) -> bool:  # type: ignore[override]
        """Made for SGD without momentum of its own."""
        return self.quasi_global

    def vectors(self) -> tuple[Vector, ...]:
        """The momentum, and the model before the step."""
        return (Vector("momentum"), Vector("start")) if self.quasi_global else ()

    def before(self, s: Step) -> None:
        """g <- g + beta m."""
        if self.quasi_global:
            torch._foreach_add_(s.g, s["momentum"], alpha=self.beta)
            torch._foreach_copy_(s["start"], s.x)

    def mixed(self, s: Step) -> None:
        """m <- mu m + (1 - mu) (x_before - x) / lr; at rate 0 nothing has moved by itself, and m stays."""
        if self.quasi_global and s.lr:
            moved = torch._foreach_sub(s["start"], s.x)
            torch._foreach_mul_(s["momentum"], self.mu)
            torch._foreach_add_(s["momentum"], moved, alpha=(1 - self.mu) / s.lr)
