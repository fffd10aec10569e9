"""16-bit floats: half the bytes of float32, by a cast."""

from __future__ import annotations

import torch
from torch import Tensor


class Half:
    """float16 keeps 11 bits and saturates at 65504; bfloat16 keeps 8 and the range of float32."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._largest = torch.finfo(dtype).max
        self.name = str(dtype).removeprefix("torch.")

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        return 2 * elements

    def encode(self, x: Tensor, data: Tensor) -> None:
        half = data.view(self._dtype)
        half.copy_(x)
        half.clamp_(-self._largest, self._largest)  # the cast made infinities of what is too large

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        return out.copy_(data.view(self._dtype))
