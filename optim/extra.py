"""`extra`: exact first-order algorithm; no bias from unlike data, at one payload, on graphs that D2 refuses.

Shi et al., "EXTRA" (2015): x_1 = W x_0 - lr g_0; x_new = x + W x - (x_old + W x_old) / 2 - lr (g - g_old). Kept as
x_new = W x - lr g + c, c <- x_new - (x - lr g) - (W x - x) / 2, which holds for a rate that changes, too. What is in flight is
the model as it was when g was taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from optim.algorithm import Step, Vector
from optim.registry import register
from optim.synchronous import Synchronous


@register("extra")
@dataclass(frozen=True)
class Extra(Synchronous):
    """Needs the same symmetric W in every round. D2 with lazy weights is exact diffusion, its sibling."""

    needs: ClassVar[frozenset[str]] = frozenset({"doubly_stochastic", "symmetric", "static"})
    corrects: ClassVar[tuple[str, ...]] = ("correction",)

    def vectors(self) -> tuple[Vector, ...]:
        """c, x, and x - lr g."""
        return Vector("correction"), Vector("start"), Vector("half")

    def before(self, s: Step) -> None:
        """Remember x."""
        torch._foreach_copy_(s["start"], s.x)

    def after(self, s: Step) -> None:
        """Publish x, not x - lr g."""
        torch._foreach_copy_(s["half"], s.x)
        torch._foreach_copy_(s.x, s["start"])

    def mixed(self, s: Step) -> None:
        """x_new = (x - lr g) + (W x - x) + c; c <- x_new - (x - lr g) - (W x - x) / 2."""
        gained = torch._foreach_sub(s.x, s["start"])
        torch._foreach_copy_(s.x, s["half"])
        torch._foreach_add_(s.x, gained)
        torch._foreach_add_(s.x, s["correction"])
        torch._foreach_copy_(s["correction"], torch._foreach_sub(s.x, s["half"]))
        torch._foreach_add_(s["correction"], gained, alpha=-0.5)
