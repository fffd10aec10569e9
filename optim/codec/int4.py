"""Blockwise 4-bit integers: an eighth of the bytes of float32 and a little more.

As `int8`, with 15 levels and groups of 256. A piece is its scales (float32), then two integers a byte (of each group the
first half in the low bits, the second half in the high ones).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from optim.codec.base import Form, chunks, scratch
from optim.codec.groups import LARGEST, SMALLEST, count

GROUP = 256
LEVELS = 7
GROUPS = 1024  # worked on at a time
LOW, HALF, ZERO = torch.tensor(15, dtype=torch.uint8), torch.tensor(4, dtype=torch.uint8), torch.tensor(8, dtype=torch.int8)
"""Mask and width of a packed integer, and what stands for 0; with Python's integers, torch takes twice as long for a group."""


class Int4:
    """The error of an element is at most 1/14 of the largest magnitude in its group."""

    name = "int4"
    form = Form.CHANGES

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        return (4 + GROUP // 2) * count(elements, GROUP)

    def encode(self, x: Tensor, data: Tensor) -> None:
        for scale, packed, group in _rows(data, x):
            _encode(_padded(group), scale, packed)

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        for scale, packed, group in _rows(data, out):
            torch.mul(_levels(packed)[:, : group.shape[1]], scale, out=group)
        return out


def _rows(data: Tensor, flat: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """(scales as a column, packed integers, elements) with a group a row, chunk by chunk; the shorter last group by itself."""
    groups, (whole, over) = count(flat.numel(), GROUP), divmod(flat.numel(), GROUP)
    scales, packed = data[: 4 * groups].view(torch.float32)[:, None], data[4 * groups :].view(groups, GROUP // 2)
    if not over:
        yield from chunks(scales, packed, flat.view(whole, GROUP), per=GROUPS)
        return
    if whole:
        yield from chunks(scales[:whole], packed[:whole], flat[:-over].view(whole, GROUP), per=GROUPS)
    yield scales[whole:], packed[whole:], flat[None, -over:]


def _padded(group: Tensor) -> Tensor:
    """Zeros after the last element."""
    missing = GROUP - group.shape[1]
    return torch.cat((group, group.new_zeros(1, missing)), 1) if missing else group


def _encode(group: Tensor, scale: Tensor, packed: Tensor) -> None:
    work = torch.abs(group, out=scratch(group))
    scale.copy_(work.amax(1, keepdim=True).div_(LEVELS).clamp_(SMALLEST, LARGEST))
    torch.div(group, scale, out=work).round_()
    levels = (work if group.dtype is torch.float32 else work.clamp_(-LEVELS, LEVELS)).add_(8).to(torch.uint8)
    low, high = levels.chunk(2, 1)
    torch.add(low, high, alpha=16, out=packed)


def _levels(packed: Tensor) -> Tensor:
    return torch.cat((packed & LOW, packed >> HALF), 1).view(torch.int8).sub_(ZERO)
