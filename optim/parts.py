"""Parts that are exchanged in turn, one in each round: runs of consecutive tensors or blocks, about equally large."""

from __future__ import annotations

from collections.abc import Sequence


def cut(sizes: Sequence[int], parts: int) -> list[int]:
    """Each one's part, in order. None is cut, so a large one makes a large part; no part is empty where there are enough.

    A part is full when one more would take it further beyond an even share of what is left than it falls short without.
    """
    left, held, part, found = sum(sizes), 0, 0, []
    for place, size in enumerate(sizes):
        after = parts - 1 - part
        if after and held and (2 * held + size > 2 * left / (after + 1) or len(sizes) - place <= after):
            left, held, part = left - held, 0, part + 1
        held += size
        found.append(part)
    return found
