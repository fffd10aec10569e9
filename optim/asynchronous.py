"""`async`: live swaps between gossip copies, at the network's pace; no step waits.

Pairwise averaging after Boyd et al., "Randomized Gossip Algorithms" (2006), beside training as in Lian et al., "Asynchronous
Decentralized Parallel SGD" (2018). A swap of a block adds a change on one side and subtracts the same on the other, so the
swarm's mean moves by local updates only, whatever the timing. Needs a topology that connects everybody over time; its
weights say how often a partner is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from optim.algorithm import Step
from optim.momentum import WithMomentum
from optim.registry import register
from optim.staleness import explicit_momentum


@register("async")
@dataclass(frozen=True)
class Async(WithMomentum):
    """`period` counts neighbourhood step times between two own swaps of a block.

    `weight=samples`: of two nodes the one that processes more samples per step moves less, so that the mean weighted by samples
    per step is kept instead of the plain one; counted are those of the node's own samplers.
    `partners=random` draws each one from the topology's row, instead of a rotation by weight. `target` above 0: the
    optimizer's momentum is what is left of this one after the asynchrony's own (see `staleness`).
    A difference beyond `clip` times the median of the partners' counts less, on both sides alike (0: none does).
    """

    exchange: ClassVar[Literal["swap", "push", "mass"]] = "swap"

    momentum: Literal["shared", "tracked", "local", "quasi-global"] = "tracked"
    partners: Literal["rotating", "random"] = "rotating"
    weight: Literal["equal", "samples"] = "equal"
    target: float = 0.0
    spread: ClassVar[bool] = False
    """Blocks are due one after another over the period, not all at once."""

    clip: float = 3.0

    def before(self, s: Step) -> None:
        """The momentum for the measured staleness, where a target is set."""
        super().before(s)
        if self.target and "momentum" in s.group:
            s.group["momentum"] = explicit_momentum(self.target, s.staleness)


@register("ad-psgd")
@dataclass(frozen=True)
class AdPsgd(Async):
    """Lian et al. (2018), as published: random partners, local momentum, the gradient of the model before the swap."""

    momentum: Literal["shared", "tracked", "local", "quasi-global"] = "local"
    partners: Literal["rotating", "random"] = "random"
