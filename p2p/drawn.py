"""What a sampler has given out, and how much of it a step has used: DataLoader workers draw far ahead of the trainer."""

from __future__ import annotations

import sys
from collections import deque
from types import FrameType

from torch.utils.data import BatchSampler, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from p2p.errors import ConfigError


class Batches(Sampler[list[int]]):
    """A batch sampler whose batches differ in size and say so: `ends[i]` samples are in the first i + 1 of this pass."""

    ends: list[int]


class Drawn:
    """Pieces of chunks in the order in which they were drawn, which is the order in which batches reach the trainer."""

    def __init__(self) -> None:
        self.used = 0  # samples, since the beginning
        self._pieces: deque[list[int]] = deque()  # [chunk, first unused sample in it, its size]

    def add(self, chunk: int, first: int, size: int) -> None:
        """The samples `first` .. `size` - 1 of a chunk are given out next."""
        self._pieces.append([chunk, first, size])

    def use(self, samples: int) -> tuple[int, list[int]]:
        """`samples` since the beginning are used. How many are new, and which chunks are finished by them."""
        new = left = max(0, samples - self.used)
        finished = []
        while left and self._pieces:
            piece = self._pieces[0]
            part = min(left, piece[2] - piece[1])
            piece[1] += part
            left -= part
            if piece[1] == piece[2]:
                finished.append(self._pieces.popleft()[0])
        self.used += new - left
        return new - left, finished

    @property
    def rest(self) -> list[tuple[int, int]]:
        """The chunks that are not used up: (chunk, first unused sample in it)."""
        return [(chunk, first) for chunk, first, _ in self._pieces]


class Source:
    """Who draws: a DataLoader that knows how many batches it has handed out, or a plain loop, which uses what it draws."""

    def __init__(self, iterator: _BaseDataLoaderIter | None) -> None:
        self._iterator = iterator

    @property
    def batches(self) -> int | None:
        """Batches handed out; None for a plain loop."""
        return None if self._iterator is None else self._iterator._num_yielded

    def delivered(self, drawn: int, exhausted: bool) -> int:
        """How many of the `drawn` samples the trainer has seen; with `drop_last`, those dropped at the end count as seen."""
        if self._iterator is None:
            return drawn
        batches, sampler = self._iterator._num_yielded, self._iterator._index_sampler
        if isinstance(sampler, Batches):
            return sampler.ends[batches - 1] if batches else 0
        if not isinstance(sampler, BatchSampler):
            return batches  # batch_size=None: one by one
        all_full = sampler.drop_last and batches == drawn // sampler.batch_size
        return drawn if exhausted and all_full else min(drawn, batches * sampler.batch_size)


def source() -> Source:
    """Who draws from the generator that calls this: the DataLoader's iterator is found on the stack above it.

    DataLoader tells a sampler nothing of what became of its samples. Its iterator counts (`_num_yielded`, in torch since
    1.2) the batches that it hands out, in the order in which they were drawn.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        above = frame.f_locals.get("self")
        if isinstance(above, _BaseDataLoaderIter):
            return Source(_checked(above))
        frame = frame.f_back
    return Source(None)


def _checked(iterator: _BaseDataLoaderIter) -> _BaseDataLoaderIter:
    """ConfigError where batches don't come in the order in which their samples were drawn."""
    if not getattr(iterator, "_in_order", True):
        raise ConfigError("DataLoader(in_order=False): which samples were used can't be told; leave it at True")
    sampler = iterator._index_sampler
    if isinstance(sampler, Sampler) and not isinstance(sampler, BatchSampler | Batches) and not iterator._auto_collation:
        return iterator
    if not isinstance(sampler, BatchSampler | Batches):
        raise ConfigError(f"batch_sampler={type(sampler).__name__}: take one from node.batches(), or give batch_size=")
    return iterator
