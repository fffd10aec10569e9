"""What every codec is, and the way from received bytes to tensors and back without a copy."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import Enum
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

CHUNK = 1 << 18
"""Elements worked on at a time, 1 MiB of float32: what one pass has written the next one finds in the cache."""


class Form(Enum):
    """What of a value survives, and so how it may travel."""

    VALUES = "values"
    """All of it, nearly: values may be sent as they are."""
    CHANGES = "changes"
    """A contraction: |x - Q(x)|^2 <= (1 - delta) |x|^2 with delta > 0. Of use for differences alone, which shrink."""
    PART = "part"
    """Exact on a part of the space, nothing of the rest: the projection that the head of a piece names."""


class Codec(Protocol):
    """Turns a flat piece into bytes and back. Stateless, deterministic, callable from any thread."""

    @property
    def name(self) -> str:
        """The name that travels."""

    @property
    def form(self) -> Form: ...

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        """Bytes of a piece on the wire, exactly; a multiple of 4 where the codec uses more than the dtype's alignment."""

    def encode(self, x: Tensor, data: Tensor) -> None:
        """Write the finite (elements,) `x` to the (nbytes,) uint8 `data`; what decodes from it is finite.

        Of a `Projection` the head of `data` has been written before, and stays.
        """

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        """The (elements,) values of the (nbytes,) uint8 `data`, in the dtype of `out`: in `out`, or a view of `data`.

        A `Projection` replaces only its part of what `out` holds.
        """


class Projection(ABC):
    """A codec of the form PART. A piece is a head, which names the projection, then x within it."""

    name: str
    form = Form.PART
    warm = False
    """Whether the next head of a block is the better for its last answer."""

    @abstractmethod
    def nbytes(self, elements: int, dtype: torch.dtype) -> int: ...

    @abstractmethod
    def head(self, elements: int) -> int:
        """Bytes of it."""

    @abstractmethod
    def begin(self, data: Tensor, elements: int, seed: int, last: Tensor | None) -> None:
        """Write the head of a new piece: drawn from the 63-bit `seed`, and following the piece of the `last` answer."""

    @abstractmethod
    def encode(self, x: Tensor, data: Tensor) -> None: ...

    @abstractmethod
    def decode(self, data: Tensor, out: Tensor) -> Tensor: ...

    @abstractmethod
    def magnify(self, elements: int) -> float:
        """A difference's expected squared norm over that of its part, at most."""

    def follow(self, ask: Tensor, answer: Tensor, elements: int) -> None:
        """An answer is of the same part as what it answers."""
        head = self.head(elements)
        answer[:head] = ask[:head]


def decode_over(codec: Codec, data: Tensor, room: Tensor, rest: Tensor | None = None) -> Tensor:
    """As `decode`; where the codec is for a part, beside it the values of `rest`, or zeros."""
    if codec.form is Form.PART:
        room.zero_() if rest is None else room.copy_(rest)
    return codec.decode(data, room)


def chunks(*tensors: Tensor, per: int = CHUNK) -> Iterator[tuple[Tensor, ...]]:
    """The tensors in step, cut along their first dimension."""
    if tensors[0].shape[0] <= per:
        yield tensors
    else:
        yield from zip(*(torch.split(tensor, per) for tensor in tensors), strict=True)


class _Rooms(threading.local):
    """One a dtype, each thread's own."""

    def __init__(self) -> None:
        self.of: dict[torch.dtype, Tensor] = {}


_rooms = _Rooms()


def scratch(like: Tensor) -> Tensor:
    """Room of a chunk's size at most, each thread's own: what it held before the next call is gone then."""
    room, elements = _rooms.of.get(like.dtype), like.numel()
    if room is None or room.numel() < elements:
        room = _rooms.of[like.dtype] = torch.empty(max(elements, CHUNK), dtype=like.dtype)
    return room[:elements].view(like.shape)


def readable(data: memoryview | bytes) -> Tensor:
    """A uint8 tensor over the same memory, which may be read-only: then nobody may write to the tensor.

    Goes by DLPack, which carries the read-only mark; torch's own constructors warn about such memory each time.
    """
    tensor: Tensor = torch.from_dlpack(np.frombuffer(data, dtype=np.uint8))  # type: ignore[attr-defined]
    return tensor


def writable(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous CPU tensor, without a copy: what a transport sends."""
    flat = tensor if tensor.dtype is torch.uint8 and tensor.dim() == 1 else tensor.view(-1).view(torch.uint8)
    return flat.numpy().data
