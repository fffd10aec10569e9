"""Parts of the model in turn: `block-cyclic` trains and exchanges one in each step, `dreamddp` trains all and exchanges one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from optim.algorithm import Step
from optim.gossip import Gossip, Local
from optim.registry import register
from optim.synchronous import Turn
from topology import SpecError


@register("block-cyclic")
@dataclass(frozen=True)
class BlockCyclic(Gossip):
    """Step t updates, and then exchanges, part t mod `groups` of the tensors; the optimizer does not see the others.

    Cyclic block coordinate descent (Beck and Tetruashvili, 2013) on each node: x_k <- W (x - lr g)_k. A step sends a part of
    the model only; to compute no more than that part's gradient is up to the training loop.
    """

    whole: ClassVar[bool] = True

    momentum: Literal["shared", "tracked", "local"] = "shared"
    groups: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups < 1 or self.overlap:
            raise SpecError(f"{self.name}: groups is {self.groups}, overlap {self.overlap}; at least 1 and no are expected")

    @property
    def parts(self) -> int:
        """As many as groups."""
        return self.groups

    def turn(self, round: int, cycle: int) -> Turn:
        """Each part counts its own rounds of the topology."""
        return Turn(round // self.groups, round % self.groups)

    def before(self, s: Step) -> None:
        """What has no gradient is left alone by the optimizer: value, moments and weight decay."""
        for p, part in zip(s.x, s.parts, strict=True):
            if part != s.part:
                p.grad = None
        super().before(s)


@register("dreamddp")
@dataclass(frozen=True)
class DreamDDP(Local):
    """Local SGD of which every step exchanges a `period`-th part, each block once a period, while the next step computes.

    Tang et al., "DreamDDP" (2025): as many bytes as `local` sends at once, but in even parts that hide behind computation. A
    part counts as the change that mixing made to the state as published, a step ago.
    """

    overlap: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.overlap or self.switch:
            raise SpecError(f"{self.name}: overlap is {self.overlap}, switch {self.switch}; yes and 0 are expected")

    @property
    def parts(self) -> int:
        """One for each step of a period."""
        return self.period

    def interval(self, step: int) -> int:
        """Something is exchanged in every step."""
        return 1

    def turn(self, round: int, cycle: int) -> Turn:
        """Each part counts its own rounds of the topology."""
        return Turn(round // self.period, round % self.period)
