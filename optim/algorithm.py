"""The contract of an algorithm: what it shares, by which exchange, how often, and what it needs of the topology.

An algorithm decides; it never touches sockets, and of memory only the tensors that a `Step` hands it. The agent carries
out a *swap* (both ways, between gossip copies, no trainer waits), a *push* (one way, in rounds that all nodes count
together) or *mass* (parcels of push-sum). Three hooks surround the user's optimizer:

    before(s)    gradients are there: see or replace them
    after(s)     the optimizer has updated: prepare what is published
    mixed(s)     parameters and shared vectors have been combined: update the own state

A step without an exchange is one with W = I: all three run, and nothing is mixed between the last two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from topology import SpecError

Tensors = list[Tensor]
"""One tensor per parameter of a group, as `torch._foreach_*` takes them."""


@dataclass(frozen=True, slots=True)
class Vector:
    """One more tensor per parameter, of its shape and dtype, zero at first; a shared one is mixed like the parameters."""

    name: str
    shared: bool = False
    wide: bool = False  # at least 32 bits, for sums of small changes
    scalar: bool = False  # one number per group instead, float64
    brought: bool = False  # exchanges add to it what they do to the optimizer's first moment; no tensors where there is none


@dataclass(slots=True)
class Step:
    """One group of parameters in one step: what the hooks work on. `step["u"]` is the vector of that name."""

    optimizer: Optimizer
    group: dict[str, Any]  # of the optimizer
    x: Tensors
    vectors: Mapping[str, Tensors]
    lr: float = 0.0  # with which the optimizer takes this step
    since: int = 0  # steps since the last exchange, this one included
    due: bool = True  # an exchange follows this step
    staleness: float = 0.0  # steps that the partners were behind in the last exchange
    silent: bool = False  # nothing in this step is worth asking others for a swap; set by the algorithm
    parts: Sequence[int] = ()  # of each parameter: in which of the algorithm's parts it is
    part: int = 0  # the part whose turn it is
    span: float = 1.0  # how long an own step takes, in step times of the neighbourhood
    loss: Callable[[], float] = float  # of the model as it is, on the batch at hand; infinite where it is not finite
    told: float = 0.0  # the loss that travels with what is published; set by the algorithm

    @property
    def g(self) -> Tensors:
        """The gradients, where there is none a new one of zeros; to be replaced by writing to them."""
        for p in self.x:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        return [p.grad for p in self.x if p.grad is not None]

    def __getitem__(self, name: str) -> Tensors:
        return self.vectors[name]


@dataclass(frozen=True)
class Algorithm:
    """Base of all. Frozen: two nodes with equal algorithms have equal specs.

    Args:
        momentum: Whether the optimizer's moments are mixed like the parameters; first and second ones together or not at all.
        period: Steps between two exchanges.
        switch: Up to this step every step exchanges, `period` counts from then on (post-local).
        ema: Decay, per step, of a moving average of the model that each node keeps beside it, to be evaluated and exported; 0:
            none is kept.
    """

    name: ClassVar[str] = ""
    exchange: ClassVar[Literal["swap", "push", "mass"]]
    needs: ClassVar[frozenset[str]] = frozenset()
    """Names of `topology.Properties` that must hold, for it to converge to the mean."""
    eigenvalue_above: ClassVar[float | None] = None
    """No eigenvalue of the mixing may be as small as this."""
    early: ClassVar[bool] = False
    """The exchange takes place between `before` and the optimizer, `after` and `mixed` with it."""
    plain: ClassVar[bool] = False
    """Made for SGD without momentum of its own."""
    partial: ClassVar[bool] = False
    """It may leave parameters out: those of further optimizers, and all while gradients are scaled."""
    whole: ClassVar[bool] = False
    """Parts are made of whole tensors; else of blocks, which are more even."""
    corrects: ClassVar[tuple[str, ...]] = ()
    """Vectors whose sum over the members must be 0: they begin anew, all in the same round, when the view has changed."""
    judges: ClassVar[bool] = False
    """It calls `Step.loss`, so the node needs a criterion."""

    momentum: Literal["shared", "local"] = "shared"
    period: int = 1
    switch: int = 0
    ema: float = 0.0

    clip = 0.0  # no annotation: a parameter of those that declare it as one
    """A difference beyond so many times the median of the partners' counts less; 0: none does."""

    def __post_init__(self) -> None:
        if self.clip < 0:
            raise SpecError(f"{self.name}: clip is {self.clip}; at least 0 is expected")
        if self.period < 1 or self.switch < 0:
            raise SpecError(f"{self.name}: period is {self.period}, switch {self.switch}; at least 1 and 0 are expected")
        if not 0 <= self.ema < 1:
            raise SpecError(f"{self.name}: ema is {self.ema}; at least 0 and less than 1 is expected")

    @property
    def shares_state(self) -> bool:
        """Whether the optimizer's state travels."""
        return self.momentum == "shared"

    @property
    def payloads(self) -> int:
        """Times the model that one exchange carries each way, the optimizer's own state aside."""
        return 1 + sum(vector.shared for vector in self.vectors())

    @property
    def parts(self) -> int:
        """Parts of the shared state that are exchanged in turn, one in each round."""
        return 1

    def interval(self, step: int) -> int:
        """Steps between two exchanges, at this step."""
        return 1 if step <= self.switch else self.period

    def vectors(self) -> tuple[Vector, ...]:
        """What it keeps beside each parameter."""
        return ()

    def before(self, s: Step) -> None:
        """The optimizer is about to step."""

    def after(self, s: Step) -> None:
        """The optimizer has stepped; an exchange may follow."""

    def mixed(self, s: Step) -> None:
        """The exchange is over."""
