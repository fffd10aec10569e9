"""Bundles: the consecutive blocks that one message carries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

BLOCKS = 64
"""Blocks in one message at most: an answer says in 64 bits which of them it accepts."""


def bundles(sizes: Sequence[tuple[int, int]], limit: int, chosen: Sequence[int] | None = None) -> Iterator[tuple[int, int]]:
    """All blocks, or those `chosen`, given as (run, bytes), as (first, count).

    Never over a gap, a run's end, `limit` bytes, or `BLOCKS`.
    """
    first = count = nbytes = 0
    for i in range(len(sizes)) if chosen is None else chosen:
        run, size = sizes[i]
        if count and (i > first + count or run != sizes[first][0] or nbytes + size > limit or count == BLOCKS):
            yield first, count
            count = nbytes = 0
        first = first if count else i
        count, nbytes = count + 1, nbytes + size
    if count:
        yield first, count
