"""Kinds of shared state, and which kind each tensor of the known optimizers is.

The kind decides how two copies of a value are mixed. Adding differences drives a second moment negative and ends in
NaN, so it is mixed convexly; step counters take the larger. What no table names stays local.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class Kind(IntEnum):
    """What a shared tensor is; the numbers travel."""

    PARAMETER = 0
    GRADIENT = 1
    BUFFER = 2  # floating, averaged: BatchNorm's running mean
    SIGNED = 3  # SGD's momentum, Adam's first moment: like parameters
    NONNEGATIVE = 4  # Adam's second moment, BatchNorm's running variance: convex mixing, increments add, decrements scale
    COUNTER = 5  # steps: the larger
    NEWEST = 6  # integer buffers: the newest (by the owner's step) wins
    RESIDUAL = 7
    MOMENTS = 8  # an optimizer's moments of one parameter, which travel in one block: columns, each of its own kind

    @property
    def linear(self) -> bool:
        """Mixed by adding differences, so that the swarm's mean doesn't move."""
        return self not in (Kind.NONNEGATIVE, Kind.COUNTER, Kind.NEWEST, Kind.MOMENTS)


Group = Mapping[str, Any]
"""One of an optimizer's param_groups."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of a parameter's optimizer state."""

    key: str
    kind: Kind | None  # None: there, but not shared
    scalar: bool = False  # else of the parameter's shape and dtype
    initial: float = 0.0
    exists: Callable[[Group], bool] = lambda group: True
    hold: Callable[[Group], float] | None = None
    """Of a first moment m that averages gradients: a gradient larger by hold x m would keep m as it is."""


def _amsgrad(group: Group) -> bool:
    return bool(group["amsgrad"])


def _momentum(group: Group) -> bool:
    return bool(group["momentum"] != 0)


def _centered(group: Group) -> bool:
    return bool(group["centered"])


def _uncentered(group: Group) -> bool:
    return not group["centered"]


def _hold_sum(group: Group) -> float:
    """m <- momentum m + (1 - dampening) g."""
    rest = 1 - float(group["dampening"])
    return _sign(group) * (1 - float(group["momentum"])) / rest if rest else 0.0


def _hold_mean(group: Group) -> float:
    """m <- b m + (1 - b) g."""
    return _sign(group)


def _sign(group: Group) -> float:
    return -1.0 if group.get("maximize") else 1.0


STEP = Slot("step", Kind.COUNTER, scalar=True)
FIRST = Slot("exp_avg", Kind.SIGNED, hold=_hold_mean)
MOMENTS = (STEP, FIRST, Slot("exp_avg_sq", Kind.NONNEGATIVE))
ADAM = (*MOMENTS, Slot("max_exp_avg_sq", Kind.NONNEGATIVE, exists=_amsgrad))

TABLE: dict[type[Optimizer], tuple[Slot, ...]] = {
    torch.optim.SGD: (Slot("momentum_buffer", Kind.SIGNED, exists=_momentum, hold=_hold_sum),),
    torch.optim.Adam: ADAM,
    torch.optim.AdamW: ADAM,
    torch.optim.RAdam: MOMENTS,
    # The running product of the decays corrects the bias of young moments; where it is laid out here, they come from
    # the swarm and are old: 0 corrects nothing.
    torch.optim.NAdam: (*MOMENTS, Slot("mu_product", None, scalar=True)),
    torch.optim.Adamax: (STEP, FIRST, Slot("exp_inf", Kind.NONNEGATIVE)),
    # The centered form takes the root of square_avg - grad_avg^2, which is negative where one of the two has travelled
    # and the other has not yet: neither is shared.
    torch.optim.RMSprop: (
        STEP,
        Slot("square_avg", Kind.NONNEGATIVE, exists=_uncentered),
        Slot("square_avg", None, exists=_centered),
        Slot("grad_avg", None, exists=_centered),
        Slot("momentum_buffer", Kind.SIGNED, exists=_momentum),
    ),
    torch.optim.Adagrad: (STEP, Slot("sum", Kind.NONNEGATIVE)),
    torch.optim.Adadelta: (STEP, Slot("square_avg", Kind.NONNEGATIVE), Slot("acc_delta", Kind.NONNEGATIVE)),
    torch.optim.Muon: (Slot("momentum_buffer", Kind.SIGNED, hold=_hold_mean),),
    torch.optim.LBFGS: (),  # its curvature pairs make sense only on the node that measured them
}
"""The state of each known optimizer. By exact class: a subclass may keep other state."""


def slots(optimizer: Optimizer, group: Group) -> tuple[Slot, ...] | None:
    """What this optimizer keeps for a parameter of this group; None for an unknown optimizer."""
    known = TABLE.get(type(optimizer))
    return None if known is None else tuple(slot for slot in known if slot.exists(group))


def first_moment(optimizer: Optimizer, group: Group) -> Slot | None:
    """The moment that averages this group's gradients; None where there is none, or the optimizer is unknown."""
    for slot in TABLE.get(type(optimizer), ()):
        if slot.hold is not None and slot.exists(group):
            return slot
    return None


def scalar_dtype(group: Group) -> torch.dtype:
    """The dtype in which torch's optimizers keep `step`."""
    wide = torch.get_default_dtype() == torch.float64 and not group.get("fused")
    return torch.float64 if wide else torch.float32


def lay_out(optimizer: Optimizer, parameter: Tensor) -> None:
    """Give `parameter` the state that `optimizer` would give it at its first step, where it has none yet."""
    group = next(g for g in optimizer.param_groups if any(p is parameter for p in g["params"]))
    state = optimizer.state[parameter]
    for slot in slots(optimizer, group) or ():
        if state.get(slot.key) is None:
            state[slot.key] = _fresh(slot, group, parameter)


def _fresh(slot: Slot, group: Group, parameter: Tensor) -> Tensor:
    if not slot.scalar:
        return torch.full_like(parameter, slot.initial, requires_grad=False, memory_format=torch.preserve_format)
    on_device = group.get("capturable") or group.get("fused")
    device = parameter.device if on_device else torch.device("cpu")
    return torch.full((), slot.initial, dtype=scalar_dtype(group), device=device)
