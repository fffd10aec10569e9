"""`slowmo`: local steps, an average every `period` of them, and a slow momentum over the averages.

Wang et al., "SlowMo" (2020): every tau steps u <- beta u + (x_0 - x_tau) / lr; x_0 <- x_0 - alpha lr u. DiLoCo's outer step
(Douillard et al., 2023) is close to it. On `complete` the averages are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from optim.algorithm import Step, Vector
from optim.registry import register
from optim.synchronous import Synchronous


@register("slowmo")
@dataclass(frozen=True)
class SlowMo(Synchronous):
    """`beta` is the slow momentum, `alpha` the slow rate."""

    period: int = 8
    beta: float = 0.2  # with momentum in the inner steps, more than that swings
    alpha: float = 1.2

    def vectors(self) -> tuple[Vector, ...]:
        """u, and x_0, where the period began."""
        return Vector("slow"), Vector("start")

    def before(self, s: Step) -> None:
        """A period begins."""
        if s.since == 1:
            torch._foreach_copy_(s["start"], s.x)

    def mixed(self, s: Step) -> None:
        """A period ends."""
        if not s.due or not s.lr:
            return
        u, start = s["slow"], s["start"]
        torch._foreach_mul_(u, self.beta)
        torch._foreach_add_(u, torch._foreach_sub(start, s.x), alpha=1 / s.lr)
        torch._foreach_copy_(s.x, start)
        torch._foreach_add_(s.x, u, alpha=-self.alpha * s.lr)
