"""Blockwise 4-bit integers: an eighth of the bytes of float32 and a little more.

As `int8`, with 15 levels and groups of 256. A piece is its scales (float32), then two integers a byte (of each group the
first half in the low bits, the second half in the high ones).
"""

from __future__ import annotations

import torch
from torch import Tensor

from optim.codec.base import Form, scratch
from optim.codec.groups import LARGEST, SMALLEST, count

GROUP = 256
LEVELS = 7
GROUPS = 1024  # worked on at a time


class Int4:
    """The error of an element is at most 1/14 of the largest magnitude in its group."""

    name = "int4"
    form = Form.CHANGES

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        return (4 + GROUP // 2) * count(elements, GROUP)

    def encode(self, x: Tensor, data: Tensor) -> None:
        scales, packed = _split(data, x.numel())
        for lo in range(0, scales.numel(), GROUPS):
            _encode(_padded(x, lo), scales[lo : lo + GROUPS, None], packed[lo : lo + GROUPS])

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        scales, packed = _split(data, out.numel())
        for lo in range(0, scales.numel(), GROUPS):
            levels = _levels(packed[lo : lo + GROUPS])
            flat = out[lo * GROUP : (lo + GROUPS) * GROUP]
            values = torch.mul(levels, scales[lo : lo + GROUPS, None]).view(-1)
            flat.copy_(values[: flat.numel()])
        return out


def _padded(x: Tensor, lo: int) -> Tensor:
    """Groups from `lo` on as rows, zeros after the last element."""
    flat = x[lo * GROUP : (lo + GROUPS) * GROUP]
    missing = -flat.numel() % GROUP
    return (torch.cat((flat, flat.new_zeros(missing))) if missing else flat).view(-1, GROUP)


def _encode(group: Tensor, scale: Tensor, packed: Tensor) -> None:
    work = torch.abs(group, out=scratch(group))
    scale.copy_(work.amax(1, keepdim=True).div_(LEVELS).clamp_(SMALLEST, LARGEST))
    torch.div(group, scale, out=work).round_().clamp_(-LEVELS, LEVELS).add_(8)
    levels = work.to(torch.uint8)
    torch.bitwise_or(levels[:, : GROUP // 2], levels[:, GROUP // 2 :] << 4, out=packed)


def _levels(packed: Tensor) -> Tensor:
    return torch.cat((packed & 15, packed >> 4), 1).to(torch.int8).sub_(8)


def _split(data: Tensor, elements: int) -> tuple[Tensor, Tensor]:
    """The scales, and the packed integers with a group a row."""
    groups = count(elements, GROUP)
    return data[: 4 * groups].view(torch.float32), data[4 * groups :].view(groups, GROUP // 2)
