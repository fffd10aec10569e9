"""Tracked momentum: each node's momentum follows the mean of all nodes' own ones, and its steps go along that mean.

Takezawa et al., "Momentum Tracking" (2022), for exchanges of any timing, and for any optimizer with a first moment m. Let u
be the momentum that the own gradients alone would make. In the mean over all nodes m and u are the same; d = m - u is what
others have brought, so it sums to 0. An optimizer lets d fade with the rest of m; here the gradient makes that good:

    g <- g + (1 - mu) d,    hence    m_new - m = u_new - u    for SGD's m <- mu m + g

(for Adam's m <- b m + (1 - b) g: g + d). Seen another way, that is g less the own mean gradient plus the swarm's, the
correction of Karimireddy et al., "SCAFFOLD" (2020). What travels is m, as with shared momentum; d adds up what mixing does to
m (`Vector.brought`). A death takes its d along, so all of it is slowly forgotten: by slow nodes at the pace of the others, so
that their data count as much. A node far ahead of all others forgets with each own step: what it knows of them stood still
while it went on, and a step along it too many times over is a learning rate too large.
"""

from __future__ import annotations

import math

import torch

from optim.algorithm import Step, Vector
from optim.kinds import first_moment

PULL = "pull"
"""Name of the vector d."""
FADING = "fading"
"""Name of the logarithm by which d has still to fade."""
VECTORS = (Vector(PULL, wide=True, brought=True), Vector(FADING, scalar=True))
COARSE = 0.05
"""To fade is a pass over all of d, so it waits until it is worth this share."""


def steer(s: Step, forget: float) -> None:
    """g <- g + (1 - mu) d, where there is a gradient; d fades by `forget` per step of the neighbourhood, or own if more."""
    slot = first_moment(s.optimizer, s.group)
    pulls = s[PULL]
    if slot is None or slot.hold is None or not pulls:
        return
    _fade(s, max(1.0, s.span) * math.log1p(-forget))
    pairs = [(p.grad, d) for p, d in zip(s.x, pulls, strict=True) if p.grad is not None]
    if pairs:
        torch._foreach_add_([g for g, _ in pairs], [d for _, d in pairs], alpha=slot.hold(s.group))


def _fade(s: Step, logarithm: float) -> None:
    (fading,) = s[FADING]
    due = float(fading) + logarithm
    if due <= math.log1p(-COARSE):
        torch._foreach_mul_(s[PULL], math.exp(due))
        due = 0.0
    fading.fill_(due)
