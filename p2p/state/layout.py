"""The flat layout: one run per kind and dtype, each cut into a fixed grid of blocks. Arithmetic alone, no tensor."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import NamedTuple

import torch

from optim.kinds import Kind
from p2p.errors import ConfigError
from p2p.state.schema import Entry


class Segment(NamedTuple):
    """A stretch of one tensor (in row-major order) within a run."""

    tensor: int
    start: int  # within the tensor
    stop: int
    at: int  # within the run


@dataclass(frozen=True, slots=True)
class Block:
    """One cell of the grid: elements `start` to `stop` of a run."""

    index: int  # over all runs
    run: int
    start: int
    stop: int
    kind: Kind
    dtype: torch.dtype  # of the copy, which is what travels raw
    segments: tuple[Segment, ...]

    @property
    def elements(self) -> int:
        return self.stop - self.start

    @property
    def nbytes(self) -> int:
        """On the wire, uncoded."""
        return self.elements * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Run:
    """All shared tensors of one kind and dtype, end to end."""

    kind: Kind
    dtype: torch.dtype  # of the tensors
    elements: int

    @property
    def copy_dtype(self) -> torch.dtype:
        """16-bit tensors have a float32 copy, or small changes would be rounded away."""
        return torch.float32 if self.dtype in (torch.float16, torch.bfloat16) else self.dtype


def lay_out(entries: Sequence[Entry], block_bytes: int) -> tuple[tuple[Run, ...], tuple[Block, ...]]:
    """The runs, ordered by kind and dtype, and their blocks, numbered run by run. Every element is in exactly one block."""
    if block_bytes < 8 or block_bytes % 8:
        raise ConfigError(f"block_bytes is {block_bytes}: it must be a positive multiple of 8, so that each block is aligned")
    groups: dict[tuple[Kind, str], list[int]] = {}
    for i, entry in enumerate(entries):
        groups.setdefault((entry.kind, str(entry.dtype)), []).append(i)
    runs: list[Run] = []
    blocks: list[Block] = []
    for _, members in sorted(groups.items()):
        sizes = [prod(entries[i].shape) for i in members]
        run = Run(entries[members[0]].kind, entries[members[0]].dtype, sum(sizes))
        blocks += _cut(run, len(runs), members, sizes, block_bytes // run.copy_dtype.itemsize, len(blocks))
        runs.append(run)
    return tuple(runs), tuple(blocks)


def _cut(run: Run, number: int, members: list[int], sizes: list[int], length: int, first: int) -> list[Block]:
    begins = [0, *accumulate(sizes)][:-1]
    blocks: list[Block] = []
    for start in range(0, run.elements, length):
        stop = min(start + length, run.elements)
        segments = _segments(members, begins, sizes, start, stop)
        blocks.append(Block(first + len(blocks), number, start, stop, run.kind, run.copy_dtype, segments))
    return blocks


def _segments(members: list[int], begins: list[int], sizes: list[int], start: int, stop: int) -> tuple[Segment, ...]:
    segments = []
    i = bisect_right(begins, start) - 1
    while i < len(begins) and begins[i] < stop:
        lo, hi = max(start, begins[i]), min(stop, begins[i] + sizes[i])
        segments.append(Segment(members[i], lo - begins[i], hi - begins[i], lo))
        i += 1
    return tuple(segments)
