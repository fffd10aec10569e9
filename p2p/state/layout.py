"""The flat layout: one run per kind and dtype, each cut into a fixed grid of blocks. Arithmetic alone, no tensor.

An optimizer's moments of a parameter are columns of the same blocks, so that they are mixed at the same instant: where a first
moment arrives before the second moment that scales it, a step explodes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import NamedTuple

import torch

from optim.kinds import Kind
from p2p.errors import ConfigError
from p2p.state.schema import Entry

Row = tuple[int, ...]
"""Entries that are columns of the same blocks."""


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
    columns: tuple[tuple[Kind, slice], ...]
    """Kind and place of each column within the block; one, and all of it, but for `Kind.MOMENTS`."""

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
    columns: tuple[Kind, ...]

    @property
    def copy_dtype(self) -> torch.dtype:
        """16-bit tensors have a float32 copy, or small changes would be rounded away."""
        return torch.float32 if self.dtype in (torch.float16, torch.bfloat16) else self.dtype


def lay_out(entries: Sequence[Entry], block_bytes: int) -> tuple[tuple[Run, ...], tuple[Block, ...]]:
    """The runs, ordered by kind and dtype, and their blocks, numbered run by run. Every element is in exactly one block."""
    if block_bytes < 8 or block_bytes % 8:
        raise ConfigError(f"block_bytes is {block_bytes}: it must be a positive multiple of 8, so that each block is aligned")
    groups: dict[tuple[tuple[Kind, ...], str], list[Row]] = {}
    for row in _rows(entries):
        kinds = tuple(entries[i].kind for i in row)
        groups.setdefault((kinds, str(entries[row[0]].dtype)), []).append(row)
    runs: list[Run] = []
    blocks: list[Block] = []
    for (kinds, _), rows in sorted(groups.items(), key=lambda group: (len(group[0][0]), group[0])):
        sizes = [prod(entries[row[0]].shape) for row in rows]
        kind = kinds[0] if len(kinds) == 1 else Kind.MOMENTS
        run = Run(kind, entries[rows[0][0]].dtype, len(kinds) * sum(sizes), kinds)
        blocks += _cut(run, len(runs), rows, sizes, block_bytes // run.copy_dtype.itemsize // len(kinds), len(blocks))
        runs.append(run)
    return tuple(runs), tuple(blocks)


def _rows(entries: Sequence[Entry]) -> Iterator[Row]:
    """Entries that travel together, in order; most travel alone."""
    together: dict[tuple[object, ...], list[int]] = {}
    for i, entry in enumerate(entries):
        key = (entry.together, entry.shape, str(entry.dtype)) if entry.together else (i,)
        together.setdefault(key, []).append(i)
    yield from map(tuple, together.values())


def _cut(run: Run, number: int, rows: list[Row], sizes: list[int], length: int, first: int) -> list[Block]:
    """Each block takes `length` elements of every column, one column after the other."""
    begins, count, blocks = [0, *accumulate(sizes)][:-1], len(run.columns), list[Block]()
    for start in range(0, sum(sizes), length):
        stop = min(start + length, sum(sizes))
        size, at = stop - start, count * start
        segments = tuple(
            Segment(rows[i][column], lo - begins[i], hi - begins[i], at + column * size + lo - start)
            for column in range(count)
            for i, lo, hi in _overlaps(begins, sizes, start, stop)
        )
        columns = tuple((kind, slice(k * size, (k + 1) * size)) for k, kind in enumerate(run.columns))
        blocks.append(Block(first + len(blocks), number, at, at + count * size, run.kind, run.copy_dtype, segments, columns))
    return blocks


def _overlaps(begins: list[int], sizes: list[int], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """The rows that lie in start .. stop, with the stretch of each."""
    i = bisect_right(begins, start) - 1
    while i < len(begins) and begins[i] < stop:
        yield i, max(start, begins[i]), min(stop, begins[i] + sizes[i])
        i += 1
