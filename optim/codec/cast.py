"""Narrower floats: half the bytes or less, by a cast."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from optim.codec.base import Form, chunks


class Cast:
    """float16 keeps 11 bits and saturates at 65504; bfloat16 keeps 8 and float32 24, both with the range of float32."""

    form = Form.VALUES

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._largest = torch.finfo(dtype).max
        self.name = str(dtype).removeprefix("torch.")

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        return self._dtype.itemsize * elements

    def encode(self, x: Tensor, data: Tensor) -> None:
        for piece, narrow in chunks(x, data.view(self._dtype)):
            narrow.copy_(piece)
            if not math.isfinite(narrow.sum().item()):  # quicker than a clamp; an overflow of the sum itself costs time alone
                narrow.clamp_(-self._largest, self._largest)  # the cast made infinities of what is too large

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        return out.copy_(data.view(self._dtype))
