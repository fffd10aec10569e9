"""Tracked momentum: each node's momentum follows the mean of all nodes' own ones, and its steps go along that mean.

Takezawa et al., "Momentum Tracking" (2022), for exchanges of any timing, and for any optimizer with a first moment m. Let u
be the momentum that the own gradients alone would make. In the mean over all nodes m and u are the same; d = m - u is what
others have brought, so it sums to 0. An optimizer lets d fade with the rest of m; here the gradient makes that good:

    g <- g + (1 - mu) d,    hence    m_new - m = u_new - u    for SGD's m <- mu m + g

(for Adam's m <- b m + (1 - b) g: g + d). Seen another way, that is g less the own mean gradient plus the swarm's, the
correction of Karimireddy et al., "SCAFFOLD" (2020). What travels is m, as with shared momentum; d is kept by adding up what
mixing does to m. A death takes its d along, so all of it is slowly forgotten: by everybody at the same pace, however fast
they step, so that slow nodes' data count as much as the others'.
"""

from __future__ import annotations

import torch
from torch import Tensor

from optim.algorithm import Step
from optim.kinds import first_moment

PULL = "pull"
"""Name of the vector d."""


def steer(s: Step, forget: float) -> None:
    """g <- g + (1 - mu) d, where there is a gradient; d fades by `forget` per step time of the neighbourhood."""
    slot = first_moment(s.optimizer, s.group)
    if slot is None or slot.hold is None:
        return
    torch._foreach_mul_(s[PULL], (1 - forget) ** s.span)
    pairs = [(p.grad, d) for p, d in zip(s.x, s[PULL], strict=True) if p.grad is not None]
    if pairs:
        torch._foreach_add_([g for g, _ in pairs], [d for _, d in pairs], alpha=slot.hold(s.group))


def part(s: Step) -> None:
    """d <- d - m, before the exchange ..."""
    pulls, moments = _there(s)
    if moments:
        torch._foreach_sub_(pulls, moments)


def join(s: Step) -> None:
    """... and d <- d + m, after it: what the exchange did to m is in d."""
    pulls, moments = _there(s)
    if moments:
        torch._foreach_add_(pulls, moments)


def _there(s: Step) -> tuple[list[Tensor], list[Tensor]]:
    """d and m of the parameters whose first moment exists."""
    slot = first_moment(s.optimizer, s.group)
    if slot is None:
        return [], []
    moments = [s.optimizer.state[p].get(slot.key) if p in s.optimizer.state else None for p in s.x]
    pairs = [(d, m) for d, m in zip(s[PULL], moments, strict=True) if m is not None]
    return [d for d, _ in pairs], [m for _, m in pairs]
