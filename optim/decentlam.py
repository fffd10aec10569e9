"""`decentlam`: momentum SGD whose bias from unlike data momentum does not amplify; made for large batches.

Yuan et al., "DecentLaM" (2021): g~ = (x - W (x - lr g)) / lr; m <- beta m + g~; x <- x - lr m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from optim.algorithm import Step, Vector
from optim.registry import register
from optim.synchronous import Synchronous


@register("decentlam")
@dataclass(frozen=True)
class DecentLaM(Synchronous):
    """With z = W (x - lr g): x <- z - lr beta m, and m <- beta m + (x_before - z) / lr."""

    plain: ClassVar[bool] = True

    beta: float = 0.9

    def vectors(self) -> tuple[Vector, ...]:
        """m, and the model before the step."""
        return Vector("momentum"), Vector("start")

    def before(self, s: Step) -> None:
        """Remember x."""
        torch._foreach_copy_(s["start"], s.x)

    def mixed(self, s: Step) -> None:
        """At rate 0 nothing has moved by itself, and m stays."""
        if not s.lr:
            return
        m, moved = s["momentum"], torch._foreach_sub(s["start"], s.x)
        torch._foreach_mul_(m, self.beta)
        torch._foreach_add_(s.x, m, alpha=-s.lr)
        torch._foreach_add_(m, moved, alpha=1 / s.lr)
