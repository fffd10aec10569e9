"""Tracking: each node follows the swarm's mean gradient, or momentum, so that unlike data leaves no bias. Two payloads.

With W doubly stochastic, sum_i y_i = sum_i g_i holds after every round. A member that comes or goes breaks the sum, so the
corrections begin anew whenever the view changes (`corrects`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from optim.algorithm import Step, Vector
from optim.registry import register
from optim.synchronous import Synchronous


@register("gradient-tracking")
@dataclass(frozen=True)
class GradientTracking(Synchronous):
    """x <- W (x - lr y); y <- W y + g_new - g_old. Nedic et al. (2017), adapt then combine: Di Lorenzo & Scutari (2016).

    Kept as y = g + d, where d is what the others add: a node alone has d = 0, exactly.
    """

    corrects: ClassVar[tuple[str, ...]] = ("rest",)

    def vectors(self) -> tuple[Vector, ...]:
        """y, which travels, and d."""
        return Vector("tracker", shared=True), Vector("rest")

    def before(self, s: Step) -> None:
        """y = g + d; d <- -g; the optimizer steps along y."""
        y, d, g = s["tracker"], s["rest"], s.g
        torch._foreach_copy_(y, g)
        torch._foreach_add_(y, d)
        torch._foreach_copy_(d, torch._foreach_neg(g))
        torch._foreach_copy_(g, y)

    def mixed(self, s: Step) -> None:
        """d <- W y - g."""
        torch._foreach_add_(s["rest"], s["tracker"])


@register("momentum-tracking")
@dataclass(frozen=True)
class MomentumTracking(Synchronous):
    """u <- beta u + g; x <- W x - lr (u - c); c <- W (c - u) + u. Takezawa et al., "Momentum Tracking" (2022).

    What travels is q = u - c: x <- W (x - lr q) + lr (W q - q) and c <- u - W q are the same, and exact for a node alone.
    """

    plain: ClassVar[bool] = True
    corrects: ClassVar[tuple[str, ...]] = ("correction",)

    beta: float = 0.9

    def vectors(self) -> tuple[Vector, ...]:
        """u and c, and q = u - c, which travels."""
        return Vector("momentum"), Vector("correction"), Vector("direction", shared=True)

    def before(self, s: Step) -> None:
        """u <- beta u + g; the optimizer steps along q = u - c."""
        u, c, q, g = s["momentum"], s["correction"], s["direction"], s.g
        torch._foreach_mul_(u, self.beta)
        torch._foreach_add_(u, g)
        torch._foreach_copy_(q, torch._foreach_sub(u, c))
        torch._foreach_copy_(g, q)

    def mixed(self, s: Step) -> None:
        """x <- x + lr (W q - q); c <- u - W q."""
        u, c, mean = s["momentum"], s["correction"], s["direction"]
        own = torch._foreach_sub(u, c)
        torch._foreach_add_(s.x, torch._foreach_sub(mean, own), alpha=s.lr)
        torch._foreach_copy_(c, torch._foreach_sub(u, mean))
