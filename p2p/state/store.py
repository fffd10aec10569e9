"""Memory in the flat layout: a copy of everything, or a window through which one block at a time passes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from optim.kinds import Kind
from p2p.state.layout import Block, Run


class Store:
    """One flat tensor per run, in the dtypes given; arbitrary until written: touching fresh pages takes longer than copying."""

    def __init__(self, runs: Sequence[Run], blocks: Sequence[Block], dtypes: Sequence[torch.dtype]) -> None:
        self._flats = [torch.empty(run.elements, dtype=dtype) for run, dtype in zip(runs, dtypes, strict=True)]
        self._pieces = [self._flats[block.run][block.start : block.stop] for block in blocks]
        self._segments: list[list[Tensor] | None] = [None] * len(blocks)

    def piece(self, block: Block) -> Tensor:
        """The block, 1-d."""
        return self._pieces[block.index]

    def segments(self, block: Block) -> list[Tensor]:
        """The block, cut into the stretches of its tensors."""
        found = self._segments[block.index]
        if found is None:
            found = self._segments[block.index] = cut(block, self.piece(block))
        return found

    def span(self, first: Block, last: Block) -> Tensor:
        """The bytes of consecutive blocks of one run."""
        return self._flats[first.run][first.start : last.stop].view(torch.uint8)


class Window:
    """Room for one block, in the dtypes given; every block of a dtype passes through the same memory."""

    def __init__(self, runs: Sequence[Run], blocks: Sequence[Block], dtypes: Sequence[torch.dtype]) -> None:
        self._dtypes = dtypes
        self._rooms = {
            dtype: torch.zeros(max((b.elements for b in blocks if dtypes[b.run] == dtype), default=0), dtype=dtype)
            for dtype in set(dtypes)
        }
        self._segments: list[list[Tensor] | None] = [None] * len(blocks)

    def piece(self, block: Block) -> Tensor:
        """The block, 1-d."""
        return self._rooms[self._dtypes[block.run]][: block.elements]

    def segments(self, block: Block) -> list[Tensor]:
        """The block, cut into the stretches of its tensors."""
        found = self._segments[block.index]
        if found is None:
            found = self._segments[block.index] = cut(block, self.piece(block))
        return found


class Scratch(threading.local):
    """Pieces to work in, a few per thread, reused: nothing is allocated once warm."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, torch.dtype, int], Tensor] = {}

    def __call__(self, number: int, like: Tensor) -> Tensor:
        """Scratch piece `number`, of the size and dtype of `like`: blocks have few sizes, so each has a piece of its own."""
        key = (number, like.dtype, like.numel())
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = torch.empty(like.numel(), dtype=like.dtype)
        return piece


def columns(block: Block, *pieces: Tensor) -> Iterator[tuple[Kind, tuple[Tensor, ...]]]:
    """Each column's kind, and its part of all these pieces of the block's size; most blocks are one column."""
    if len(block.columns) == 1:
        yield block.columns[0][0], pieces
        return
    for kind, at in block.columns:
        yield kind, tuple(piece[at] for piece in pieces)


def cut(block: Block, piece: Tensor) -> list[Tensor]:
    """A block's piece, cut into the stretches of its tensors."""
    return [piece[s.at - block.start : s.at - block.start + s.stop - s.start] for s in block.segments]
