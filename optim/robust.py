"""Rules that bear neighbours who send wrong but finite models, in place of the weighted mean of a synchronous round.

    nearest    the mean over self and all but the `bad` farthest neighbours (NNA, Farhadkhani et al., 2023)
    clipped    x + sum_j w_j clip(x_j - x), to the (bad + 1)-th largest distance (self-centred clipping, He et al., 2022)
    trimmed    per element the mean without the `bad` largest and smallest neighbours' values (BRIDGE-T, Fang et al., 2022)

Each block is decided by itself. All cost accuracy where the data are unlike: an honest neighbour may be the farthest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor

Name = Literal["none", "nearest", "clipped", "trimmed"]
Others = Sequence[tuple[float, Tensor]]
"""Neighbours' weights and values, like the own one; all finite."""


class Rule(Protocol):
    """Writes to `out` what the own value, of this weight, and the neighbours' become. Values may be overwritten, `own` not."""

    def __call__(self, own: Tensor, weight: float, others: Others, bad: int, out: Tensor) -> None: ...


def nearest(own: Tensor, weight: float, others: Others, bad: int, out: Tensor) -> None:
    """Weights are those of the row, scaled so that the kept ones sum to 1."""
    kept = sorted(others, key=lambda other: float((other[1] - own).norm()))[: max(len(others) - bad, 0)]
    total = weight + sum(w for w, _ in kept)
    torch.mul(own, weight / total, out=out)
    for w, value in kept:
        out.add_(value, alpha=w / total)


def clipped(own: Tensor, weight: float, others: Others, bad: int, out: Tensor) -> None:
    """With as many neighbours as may be bad, or fewer, nothing is taken."""
    out.copy_(own)
    apart = [(w, value.sub_(own)) for w, value in others]
    distances = [float(change.norm()) for _, change in apart]
    radius = sorted(distances, reverse=True)[bad] if len(distances) > bad else 0.0
    for (w, change), distance in zip(apart, distances, strict=True):
        out.add_(change, alpha=w * (radius / distance if distance > radius else 1.0))


def trimmed(own: Tensor, weight: float, others: Others, bad: int, out: Tensor) -> None:
    """The rest and the own value weigh the same."""
    if len(others) <= 2 * bad:
        out.copy_(own)
        return
    values = torch.stack([value for _, value in others]).sort(dim=0).values[bad : len(others) - bad]
    torch.sum(values, dim=0, out=out)
    out.add_(own).div_(len(values) + 1)


RULES: dict[str, Rule] = {"nearest": nearest, "clipped": clipped, "trimmed": trimmed}
