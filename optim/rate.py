"""The effective learning rate: how far the swarm's mean gradient goes along a node's own one.

Zhang et al., "Loss Landscape Dependent Self-Adjusting Learning Rates in Decentralized SGD" (2021): lr <g_a, g> / |g|^2, with
g_a the mean of all nodes' gradients. A node knows g_a as its first moment, which is shared, and takes its own batch's
gradient for g: near lr where all pull alike, near 0 or below where they pull apart. Without a first moment it is lr.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from optim.algorithm import Step
from optim.kinds import first_moment

PIECE = 1 << 20
"""Elements that are looked at together."""


@torch.no_grad()
def effective_rate(steps: Sequence[Step]) -> float:
    """Of the first optimizer's rate, over all its parameters with a gradient and a first moment."""
    along = square = 0.0
    for s in steps:
        slot = first_moment(s.optimizer, s.group)
        if slot is None or slot.hold is None:
            continue
        for p in s.x:
            moment = s.optimizer.state[p].get(slot.key) if p in s.optimizer.state else None
            if p.grad is not None and moment is not None:
                along += slot.hold(s.group) * _dot(moment, p.grad)
                square += _dot(p.grad, p.grad)
    lr = steps[0].lr if steps else 0.0
    rate = lr * along / square if square else lr
    return rate if math.isfinite(rate) else lr


def _dot(a: Tensor, b: Tensor) -> float:
    """In pieces: a product of its own would be as large as the tensor."""
    pieces = zip(torch.split(a.flatten(), PIECE), torch.split(b.flatten(), PIECE), strict=True)
    return sum(float(torch.dot(x.float(), y.float())) for x, y in pieces)
