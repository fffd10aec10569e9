"""`d2`: decentralized training over decentralized data; no bias from unlike data, at one payload.

Tang et al., "D2" (2018): x_new = W (x - lr g + c); c <- x_new - (x - lr g), which holds for a rate that changes, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from optim.algorithm import Step, Vector
from optim.registry import register
from optim.synchronous import Synchronous


@register("d2")
@dataclass(frozen=True)
class D2(Synchronous):
    """Needs the same symmetric W in every round, with eigenvalues above -1/3: lazy weights have none below 0."""

    needs: ClassVar[frozenset[str]] = frozenset({"doubly_stochastic", "symmetric", "static"})
    eigenvalue_above: ClassVar[float | None] = -1 / 3
    corrects: ClassVar[tuple[str, ...]] = ("correction",)

    def vectors(self) -> tuple[Vector, ...]:
        """c, and the model as the optimizer left it."""
        return Vector("correction"), Vector("half")

    def after(self, s: Step) -> None:
        """Publish x - lr g + c."""
        torch._foreach_copy_(s["half"], s.x)
        torch._foreach_add_(s.x, s["correction"])

    def mixed(self, s: Step) -> None:
        """c <- x_new - (x - lr g)."""
        torch._foreach_copy_(s["correction"], torch._foreach_sub(s.x, s["half"]))
