"""Blockwise 8-bit integers: a quarter of the bytes of float32 and a little more.

Each group of 1024 elements is divided by a scale of its own, its largest magnitude / 127, and rounded to the nearest
integer (Dettmers et al. 2022, "8-bit optimizers via block-wise quantization", with linear levels). A piece is its scales
(float32), then its integers, then zeros up to a multiple of 4 bytes, so that the next piece is aligned.
"""

from __future__ import annotations

import torch
from torch import Tensor

from optim.codec.base import Form, scratch
from optim.codec.groups import LARGEST, SMALLEST, count, rows

GROUP = 1024
LEVELS = 127


class Int8:
    """The error of an element is at most 1/254 of the largest magnitude in its group."""

    name = "int8"
    form = Form.VALUES

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        return 4 * count(elements, GROUP) + -(-elements // 4) * 4

    def encode(self, x: Tensor, data: Tensor) -> None:
        scales, levels = _split(data, x.numel())
        if x.numel() % 4:
            data[scales.numel() * 4 + levels.numel() :] = 0
        for scale, group, level in rows(GROUP, scales, x, levels):
            work = torch.abs(group, out=scratch(group))
            scale.copy_(work.amax(1, keepdim=True).div_(LEVELS).clamp_(SMALLEST, LARGEST))
            torch.div(group, scale, out=work).round_()
            level.copy_(work if x.dtype is torch.float32 else work.clamp_(-LEVELS, LEVELS))  # doubles may exceed the scale

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        scales, levels = _split(data, out.numel())
        for scale, group, level in rows(GROUP, scales, out, levels):
            group.copy_(level).mul_(scale)
        return out


def _split(data: Tensor, elements: int) -> tuple[Tensor, Tensor]:
    """The scales and the integers within a piece."""
    at = 4 * count(elements, GROUP)
    return data[:at].view(torch.float32), data[at : at + elements].view(torch.int8)
