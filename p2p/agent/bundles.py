"""Bundles: the consecutive blocks that one message carries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

BLOCKS = 64
"""Blocks in one message at most: an answer says in 64 bits which of them it accepts."""


def bundles(sizes: Sequence[tuple[int, int]], limit: int) -> Iterator[tuple[int, int]]:
    """All blocks, given as (run, bytes), as (first, count): never over a run's end, `limit` bytes, or `BLOCKS`."""
    first, nbytes = 0, 0
    for i, (run, size) in enumerate(sizes):
        if i > first and (run != sizes[first][0] or nbytes + size > limit or i - first == BLOCKS):
            yield first, i - first
            first, nbytes = i, 0
        nbytes += size
    if sizes:
        yield first, len(sizes) - first
