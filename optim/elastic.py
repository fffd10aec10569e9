"""`elastic`: a model goes a part of the way to its neighbours' mean; what is left over is kept as diversity.

x <- y + force (W y - y), y = x - lr g: the elastic force of EASGD (Zhang et al., 2015) between neighbours instead of workers
and a centre, and the exponential merge a y + (1 - a) W y of VC-ASGD (2021), a = 1 - force. Mixing moves no mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from optim.algorithm import Step, Vector
from optim.registry import register
from optim.synchronous import Synchronous
from topology import SpecError


@register("elastic")
@dataclass(frozen=True)
class Elastic(Synchronous):
    """`force` 1 is `gossip`; the optimizer's moments stay local."""

    momentum: Literal["shared", "local"] = "local"
    force: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.force <= 1:
            raise SpecError(f"{self.name}: force is {self.force}; above 0 and at most 1 is expected")

    def vectors(self) -> tuple[Vector, ...]:
        """y."""
        return (Vector("published"),)

    def after(self, s: Step) -> None:
        """Remember y."""
        torch._foreach_copy_(s["published"], s.x)

    def mixed(self, s: Step) -> None:
        """Go a part of the way back."""
        torch._foreach_lerp_(s.x, s["published"], 1 - self.force)
