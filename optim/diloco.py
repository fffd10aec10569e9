"""`diloco`, `palsgd`: local steps, and an outer Nesterov step along what a period has moved, over gossip instead of all-reduce.

Douillard et al., "DiLoCo" (2023): D = x_0 - W x_tau; u <- mu u + D; x_0 <- x_0 - rate (D + mu u). On `complete` the averages
are exact, as published. Naganuma et al., "Pseudo-Asynchronous Local SGD" (2025), pulls towards the anchor x_0 in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from optim.algorithm import Step, Vector
from optim.registry import register
from optim.synchronous import Synchronous
from topology import SpecError


@register("diloco")
@dataclass(frozen=True)
class DiLoCo(Synchronous):
    """`rate` is the outer step's, `mu` its momentum; the optimizer's own moments stay local, as published.

    Published is mu = 0.9, for exact averages: over gossip that swings, and with unlike data diverges.
    """

    momentum: str = "local"  # type: ignore[assignment]  # another default
    period: int = 8
    rate: float = 0.7
    mu: float = 0.6

    def vectors(self) -> tuple[Vector, ...]:
        """u, and x_0, where the period began."""
        return Vector("outer"), Vector("anchor")

    def before(self, s: Step) -> None:
        """A period begins."""
        if s.since == 1:
            torch._foreach_copy_(s["anchor"], s.x)

    def mixed(self, s: Step) -> None:
        """A period ends."""
        if not s.due:
            return
        u, anchor = s["outer"], s["anchor"]
        moved = torch._foreach_sub(anchor, s.x)
        torch._foreach_mul_(u, self.mu)
        torch._foreach_add_(u, moved)
        torch._foreach_copy_(s.x, anchor)
        torch._foreach_add_(s.x, moved, alpha=-self.rate)
        torch._foreach_add_(s.x, u, alpha=-self.rate * self.mu)


@register("palsgd")
@dataclass(frozen=True)
class PALSGD(DiLoCo):
    """Every `pull`-th step of a period goes a part `kappa` of the way back to the anchor, instead of along the gradient.

    The paper draws these steps with probability 1 / `pull`; here they are evenly spaced, so that a run repeats.
    """

    rate: float = 1.4  # twice DiLoCo's: a period that is pulled back moves about half as far
    pull: int = 4
    kappa: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pull < 1:
            raise SpecError(f"palsgd: pull is {self.pull}; at least 1 step is expected")

    def before(self, s: Step) -> None:
        """x <- x - kappa (x - x_0); without a gradient the optimizer leaves the parameter and its moments alone."""
        super().before(s)
        if s.since % self.pull == 0:
            torch._foreach_lerp_(s.x, s["anchor"], self.kappa)
            for p in s.x:
                p.grad = None
