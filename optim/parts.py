"""Parts that are exchanged in turn, one in each round: runs of consecutive tensors or blocks, about equally large."""

from __future__ import annotations

from collections.abc import Sequence


def cut(sizes: Sequence[int], parts: int) -> list[int]:
    """Each one's part, in order: that in which its middle lies. None is cut, so a large one makes a large part."""
    total, before, found = sum(sizes), 0, []
    for size in sizes:
        found.append(min(parts - 1, parts * (2 * before + size) // (2 * total)))
        before += size
    return found
