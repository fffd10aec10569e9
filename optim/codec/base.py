"""What every codec is, and the way from received bytes to tensors and back without a copy."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Codec(Protocol):
    """Turns a flat piece into bytes and back. Stateless, deterministic, callable from any thread."""

    @property
    def name(self) -> str:
        """The name that travels."""

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        """Bytes of a piece on the wire, exactly."""

    def encode(self, x: Tensor, data: Tensor) -> None:
        """Write the finite (elements,) `x` to the (nbytes,) uint8 `data`; what decodes from it is finite."""

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        """The (elements,) values of the (nbytes,) uint8 `data`, in the dtype of `out`: in `out`, or a view of `data`."""


def readable(data: memoryview | bytes) -> Tensor:
    """A uint8 tensor over the same memory, which may be read-only: then nobody may write to the tensor.

    Goes by DLPack, which carries the read-only mark; torch's own constructors warn about such memory each time.
    """
    tensor: Tensor = torch.from_dlpack(np.frombuffer(data, dtype=np.uint8))  # type: ignore[attr-defined]
    return tensor


def writable(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, without a copy: what a transport sends."""
    return tensor.view(-1).view(torch.uint8).numpy().data
