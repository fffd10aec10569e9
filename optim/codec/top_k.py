"""The largest magnitudes alone: one element in `every`, with its place.

A piece of n elements is, for each 65,536 of them, k = ceil(n / every) places (uint16), zeros up to a multiple of 4 bytes,
and k values (float32).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from optim.codec.base import Form, scratch
from optim.codec.groups import LARGEST

SPAN = 1 << 16  # elements that a place can name


class TopK:
    """Keeps at least 1 / every of |x|^2 (Stich et al. 2018, "Sparsified SGD with memory")."""

    form = Form.CHANGES

    def __init__(self, every: int) -> None:
        self._every = every
        self.name = f"top-k:{every}"

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        whole, rest = divmod(elements, SPAN)
        return whole * _nbytes(self._kept(SPAN)) + (_nbytes(self._kept(rest)) if rest else 0)

    def encode(self, x: Tensor, data: Tensor) -> None:
        for span, places, values, padding in self._spans(x, data):
            found = torch.topk(torch.abs(span, out=scratch(span)), places.numel(), sorted=False).indices
            found = found.sort().values
            places.copy_(found)
            values.copy_(span[found].clamp_(-LARGEST, LARGEST))
            padding.zero_()

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        for span, places, values, _ in self._spans(out, data):
            found = places.to(torch.int64)
            if int(found.max()) >= span.numel():
                return out.fill_(torch.nan)  # no such place: whoever reads it finds that it isn't finite
            span.zero_()
            span[found] = values.to(out.dtype)
        return out

    def _kept(self, elements: int) -> int:
        return -(-elements // self._every)

    def _spans(self, x: Tensor, data: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """(elements, places, values, padding) of each span."""
        at = 0
        for span in torch.split(x, SPAN):
            k = self._kept(span.numel())
            piece = data[at : at + _nbytes(k)]
            at += _nbytes(k)
            values = piece[piece.numel() - 4 * k :].view(torch.float32)
            yield span, piece[: 2 * k].view(torch.uint16), values, piece[2 * k : piece.numel() - 4 * k]


def _nbytes(k: int) -> int:
    return -(-2 * k // 4) * 4 + 4 * k
