"""As it is: the bytes of the copy's own dtype, in this machine's (little-endian) order."""

from __future__ import annotations

import torch
from torch import Tensor

from optim.codec.base import Form


class Raw:
    """No loss, no work, and nothing to copy on arrival."""

    name = "raw"
    form = Form.VALUES

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        return elements * dtype.itemsize

    def encode(self, x: Tensor, data: Tensor) -> None:
        data.view(x.dtype).copy_(x)

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        return data.view(out.dtype)
