"""Groups of elements with a scale of their own, as rows of a matrix."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from optim.codec.base import CHUNK

SMALLEST, LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


def count(elements: int, group: int) -> int:
    """Groups of so many elements."""
    return -(-elements // group)


def rows(group: int, scales: Tensor, *flats: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """(scales as a column, then each flat with a group a row), chunk by chunk; the shorter last group comes by itself.

    Of each flat, a group takes the same number of places; the last flat elements over whole groups are the last group's.
    """
    elements = flats[0].numel()
    whole, per = elements // group, CHUNK // group
    for lo in range(0, whole, per):
        hi = min(lo + per, whole)
        yield scales[lo:hi, None], *(flat[lo * group : hi * group].view(hi - lo, group) for flat in flats)
    if whole * group < elements:
        yield scales[whole:, None], *(flat[None, whole * group :] for flat in flats)
