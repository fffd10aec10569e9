"""`line-search`: a node tries some merges of its model with its neighbours' mean on its own batch, and takes the best.

x <- y + a (W y - y), y = x - lr g, a the best of 1/k, 2/k ... 1. `elastic` has a fixed a; 0, which would leave the node
alone, is not among them. The mean moves where nodes choose differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from optim.algorithm import Step, Vector
from optim.registry import register
from optim.synchronous import Synchronous
from topology import SpecError


@register("line-search")
@dataclass(frozen=True)
class LineSearch(Synchronous):
    """`tries` evaluations of the criterion per exchange. Groups of parameters are searched one after the other."""

    judges: ClassVar[bool] = True

    tries: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tries < 1:
            raise SpecError(f"{self.name}: tries is {self.tries}; at least 1 is expected")

    def vectors(self) -> tuple[Vector, ...]:
        """y, and W y."""
        return Vector("published"), Vector("mean")

    def after(self, s: Step) -> None:
        """Remember y."""
        torch._foreach_copy_(s["published"], s.x)

    def mixed(self, s: Step) -> None:
        """Of equals the one that goes furthest."""
        if not s.due:
            return
        torch._foreach_copy_(s["mean"], s.x)
        _, back = min((self._try(s, tries / self.tries), tries) for tries in range(self.tries))
        self._go(s, back / self.tries)

    def _try(self, s: Step, back: float) -> float:
        self._go(s, back)
        return s.loss()

    def _go(self, s: Step, back: float) -> None:
        """`back` is 1 - a."""
        torch._foreach_copy_(s.x, torch._foreach_lerp(s["mean"], s["published"], back))
