"""Blockwise 8-bit integers: a quarter of the bytes of float32 and a little more.

Each group of 1024 elements is divided by a scale of its own, its largest magnitude / 127, and rounded to the nearest
integer (Dettmers et al. 2022, "8-bit optimizers via block-wise quantization", with linear levels). A piece is its scales
(float32), then its integers, then zeros up to a multiple of 4 bytes, so that the next piece is aligned.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 1024
LEVELS = 127
SMALLEST, LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


class Int8:
    """The error of an element is at most 1/254 of the largest magnitude in its group."""

    name = "int8"

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        return 4 * _groups(elements) + -(-elements // 4) * 4

    def encode(self, x: Tensor, data: Tensor) -> None:
        scales, levels = _split(data, x.numel())
        data[scales.numel() * 4 + levels.numel() :] = 0
        for group, scale, level in _rows(x, scales, levels):
            scale.copy_(group.abs().amax(1, keepdim=True).div_(LEVELS).clamp_(SMALLEST, LARGEST))
            level.copy_((group / scale).round_().clamp_(-LEVELS, LEVELS))

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        for group, scale, level in _rows(out, *_split(data, out.numel())):
            group.copy_(level).mul_(scale)
        return out


def _groups(elements: int) -> int:
    return -(-elements // GROUP)


def _split(data: Tensor, elements: int) -> tuple[Tensor, Tensor]:
    """The scales and the integers within a piece."""
    at = 4 * _groups(elements)
    return data[:at].view(torch.float32), data[at : at + elements].view(torch.int8)


def _rows(x: Tensor, scales: Tensor, levels: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Two-dimensional views, a group per row: of all whole groups, and of the shorter last one."""
    whole = x.numel() // GROUP
    cut, rows = whole * GROUP, []
    if whole:
        rows.append((x[:cut].view(whole, GROUP), scales[:whole, None], levels[:cut].view(whole, GROUP)))
    if cut < x.numel():
        rows.append((x[None, cut:], scales[whole:, None], levels[None, cut:]))
    return rows
