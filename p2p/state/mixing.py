"""How two values of one kind are mixed: the whole mathematics of the shared state, on flat pieces.

Linear kinds add differences, so that the swarm's mean doesn't move. Non-negative ones are mixed convexly, and where a
change made elsewhere joins, increments add and decrements scale: nothing can become negative. Counters take the larger.
Integers take the newest, which only their holder can tell (`Kind.NEWEST` never comes here).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from optim.kinds import Kind

Work = tuple[Tensor, Tensor]
"""Two scratch pieces, like the value."""


def merge(kind: Kind, value: Tensor, new: Tensor, old: Tensor, work: Work) -> None:
    """The change `old` -> `new`, made elsewhere, joins `value` in place."""
    change, ratio = work
    if kind is Kind.COUNTER:
        torch.maximum(value, new, out=value)
        return
    torch.sub(new, old, out=change)
    if kind is Kind.NONNEGATIVE:  # value + change where it grows, value * new / old where it shrinks
        value.add_(change.clamp_(min=0))
        torch.div(new, old, out=ratio)
        value.mul_(torch.fmin(ratio, ratio.new_ones(()), out=ratio))  # 0 / 0 is no change: fmin passes over nan
    else:
        value.add_(change)


def blend(kind: Kind, value: Tensor, other: Tensor, weight: float) -> None:
    """`other` joins `value` in place, convexly; of counters, the larger stays."""
    if kind is Kind.COUNTER:
        torch.maximum(value, other, out=value)
    else:
        value.lerp_(other, weight)
        if kind is Kind.NONNEGATIVE:
            value.clamp_(min=0)  # whatever a partner sent


def squared_norm(x: Tensor) -> float:
    """The sum of squares; nan where a value isn't finite. The quick way is right unless it overflows."""
    squared = float(torch.dot(x, x)) if x.is_floating_point() else 0.0
    if math.isfinite(squared):
        return squared
    if not bool(torch.isfinite(x).all()):
        return math.nan
    return float(x.double().norm()) ** 2
