"""`od-sgd`: the round of one step travels during the next one, whose gradient is taken at a model that is compensated for it.

Xu et al., "OD-SGD" (2020): v = x - local lr g, with x what the others' updates up to the step before last have made, and g the
own last gradient; the servers update x along the gradients at v. Here gossip stands in for the servers: p = x - lr opt(g),
x_next = W p. With plain SGD and `local` 1, v is p, and this is `gossip:overlap=yes`; with momentum it is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from optim.algorithm import Step, Vector
from optim.gossip import Gossip
from optim.registry import register
from topology import SpecError


@register("od-sgd")
@dataclass(frozen=True)
class OneStepDelay(Gossip):
    """The model is v between two steps, and p while it is exchanged. `local` is the rate of the own gradient, in lr."""

    overlap: bool = True
    local: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local < 0 or not self.overlap:
            raise SpecError(f"{self.name}: local is {self.local}, overlap {self.overlap}; at least 0 and yes are expected")

    def vectors(self) -> tuple[Vector, ...]:
        """Beside momentum's: v - p, 0 in who has just joined."""
        return *super().vectors(), Vector("ahead")

    def before(self, s: Step) -> None:
        """Back to p, from where the optimizer steps."""
        torch._foreach_sub_(s.x, s["ahead"])
        super().before(s)
        torch._foreach_copy_(s["ahead"], s.x)

    def after(self, s: Step) -> None:
        """v - p = (p_before - local lr g) - (p_before - lr opt(g)): what mixing brings is in both."""
        torch._foreach_add_(s["ahead"], s.g, alpha=-self.local * s.lr)
        torch._foreach_sub_(s["ahead"], s.x)
        super().after(s)

    def mixed(self, s: Step) -> None:
        """Forward to v, where the next gradient is taken."""
        super().mixed(s)
        torch._foreach_add_(s.x, s["ahead"])
