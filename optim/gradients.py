"""`gradient-gossip`: gradients and models are mixed together before each step, so any optimizer sees the mixed gradient.

(x, g) <- W (x, g); x <- x - lr opt(g). On `complete` that is synchronous data parallelism, with the same gradient everywhere;
on sparse graphs the models' own mixing keeps them together, and momentum or Adam work on smoother gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from optim.algorithm import Step, Vector
from optim.registry import register
from optim.synchronous import Synchronous


@register("gradient-gossip")
@dataclass(frozen=True)
class GradientGossip(Synchronous):
    """Two payloads. The optimizer's state stays local: all see nearly the same gradients."""

    early: ClassVar[bool] = True

    momentum: Literal["shared", "local"] = "local"

    def vectors(self) -> tuple[Vector, ...]:
        """The gradient, to travel."""
        return (Vector("gradient", shared=True),)

    def before(self, s: Step) -> None:
        """What is published."""
        torch._foreach_copy_(s["gradient"], s.g)

    def mixed(self, s: Step) -> None:
        """The optimizer steps along W g."""
        torch._foreach_copy_(s.g, s["gradient"])
