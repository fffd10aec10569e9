"""The mean of several nodes' models, put into the own model for an evaluation and taken out again.

Parameters and floating buffers take part; optimizer state and integers are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from optim.codec import Codec
from p2p.state.layout import Block
from p2p.state.mixing import squared_norm
from p2p.state.shards import Shards
from p2p.state.store import cut


class Mean:
    """Sums members block by block, each whole or not at all; the own model is the first."""

    def __init__(self, shards: Shards) -> None:
        """The trainer's thread: reads the model."""
        self._shards = shards
        sources = shards.sources
        self.blocks: tuple[Block, ...] = tuple(
            block
            for block in shards.blocks
            if block.dtype.is_floating_point and any(sources[s.tensor].in_model for s in block.segments)
        )
        """What to ask each member for."""
        self.count = 1
        self._sums = {block.index: value for block, value in zip(self.blocks, shards.model(self.blocks), strict=True)}
        self._incoming = {block.index: torch.empty_like(self._sums[block.index]) for block in self.blocks}
        self._awaited = set(self._incoming)

    def put(self, index: int, data: Tensor, codec: Codec) -> None:
        """A block of the member whose turn it is; blocks outside `blocks` are ignored."""
        if index in self._incoming:
            room = self._incoming[index]
            room.copy_(codec.decode(data, room))
            self._awaited.discard(index)

    def close(self) -> bool:
        """The member's turn ends. It counts, and True is returned, if all of its blocks came and are finite."""
        whole = not self._awaited and all(squared_norm(x) >= 0 for x in self._incoming.values())
        if whole:
            self.count += 1
            for index, value in self._incoming.items():
                self._sums[index] += value
        self._awaited = set(self._incoming)
        return whole

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The trainer's thread: inside, the model holds the mean; afterwards exactly what it held before."""
        tensors = [(self._shards.sources[i].create(), value) for i, value in self._values().items()]
        with holding([(tensor, value.view(tensor.shape)) for tensor, value in tensors]):
            yield

    def _values(self) -> dict[int, Tensor]:
        """The mean of each of the model's tensors, flat."""
        pieces: dict[int, list[Tensor]] = {}
        for block in self.blocks:
            for segment, piece in zip(block.segments, cut(block, self._sums[block.index] / self.count), strict=True):
                if self._shards.sources[segment.tensor].in_model:
                    pieces.setdefault(segment.tensor, []).append(piece)
        return {i: torch.cat(parts) for i, parts in pieces.items()}


@contextmanager
def holding(values: Sequence[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """The trainer's thread: inside, the tensors hold these values; afterwards exactly what they held before."""
    kept = [tensor.detach().clone() for tensor, _ in values]
    try:
        for tensor, value in values:
            tensor.detach().copy_(value)
        yield
    finally:
        for (tensor, _), value in zip(values, kept, strict=True):
            tensor.detach().copy_(value)
