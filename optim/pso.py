"""`pso`: particle swarm optimization on top of gradient steps; a merge rule that sees losses.

Kennedy and Eberhart, "Particle Swarm Optimization" (1995), with inertia after Shi and Eberhart (1998). After each gradient
step h = x - lr g: p <- h where its loss is not above that of p; v <- inertia v + own (p - h) + swarm (q - h); x <- h + v. q is
the p of least loss among the node and its neighbours. What travels is p, with its loss. Published with random factors from 0 to
1 on both pulls; here `own` and `swarm` are their means, so that a run repeats. Losses of unlike data don't compare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from optim.algorithm import Step, Vector
from optim.registry import register
from optim.synchronous import Standing, Synchronous


@register("pso")
@dataclass(frozen=True)
class ParticleSwarm(Synchronous):
    """Two evaluations of the criterion per exchange: p is judged anew on each batch, or a lucky one would keep it for good."""

    judges: ClassVar[bool] = True
    punctual: ClassVar[bool] = True

    momentum: Literal["shared", "local"] = "local"
    inertia: float = 0.5
    own: float = 0.1
    swarm: float = 0.5

    def vectors(self) -> tuple[Vector, ...]:
        """p, h and v, and whether there is a p."""
        return Vector("best"), Vector("here"), Vector("velocity"), Vector("begun", scalar=True)

    def after(self, s: Step) -> None:
        """Publish p with its loss."""
        if not s.due:
            return
        p, h, begun = s["best"], s["here"], s["begun"][0]
        torch._foreach_copy_(h, s.x)
        here = s.loss()
        torch._foreach_copy_(s.x, p)
        best = s.loss() if begun else math.inf
        if here <= best:
            torch._foreach_copy_(p, h)
            torch._foreach_copy_(s.x, h)
        s.told = min(here, best)
        begun.fill_(1)

    def weigh(self, own: Standing, others: Sequence[Standing]) -> Sequence[float]:
        """All to the one of least loss; of equals to the own, or the first."""
        least = min([own.loss, *(other.loss for other in others)])
        best = next((i for i, other in enumerate(others) if other.loss == least < own.loss), None)
        return [float(i == best) for i in range(len(others))]

    def mixed(self, s: Step) -> None:
        """x, which is q now, becomes h + v."""
        if not s.due:
            return
        h, v = s["here"], s["velocity"]
        torch._foreach_mul_(v, self.inertia)
        torch._foreach_add_(v, torch._foreach_sub(s["best"], h), alpha=self.own)
        torch._foreach_add_(v, torch._foreach_sub(s.x, h), alpha=self.swarm)
        torch._foreach_copy_(s.x, torch._foreach_add(h, v))
