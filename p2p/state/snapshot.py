"""A copy of the whole shared state, as a donor serves it to joiners."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from p2p.state.layout import Block
from p2p.state.store import Store


class Snapshot:
    """All blocks at about one moment; a block that was copied doesn't change any more."""

    def __init__(self, blocks: Sequence[Block], store: Store, read: Callable[[Block, Tensor], None]) -> None:
        self._blocks, self._store, self._read = blocks, store, read
        self._next = 0
        self._copied = [False] * len(blocks)

    def advance(self, count: int) -> bool:
        """Copy up to `count` more blocks; True once all are there. Lets a donor go on between the calls."""
        for block in self._blocks[self._next : self._next + count]:
            self._copy(block)
        self._next = min(self._next + count, len(self._blocks))
        return self._next == len(self._blocks)

    def payload(self, first: Block, last: Block) -> Tensor:
        """The raw bytes of consecutive blocks of one run; what `advance` has not come to yet is copied now."""
        for block in self._blocks[first.index : last.index + 1]:
            self._copy(block)
        return self._store.span(first, last)

    def _copy(self, block: Block) -> None:
        if not self._copied[block.index]:
            self._read(block, self._store.piece(block))
            self._copied[block.index] = True
