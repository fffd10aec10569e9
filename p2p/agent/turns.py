"""Turns: in which step of a period each block is asked for, so that what is asked at one meet is back before the next."""

from __future__ import annotations

from collections.abc import Sequence

from optim.schedule import schedule

RUNS = 64
"""Runs of consecutive blocks that get a turn each, at most: neighbours travel in one message."""


def turns(sizes: Sequence[int], carried: float, period: int) -> list[int]:
    """The step of each block, 0 to `period` - 1; `sizes` and what a link carries in a step are in bytes."""
    length = -(-len(sizes) // RUNS)
    costs = [sum(sizes[first : first + length]) / carried for first in range(0, len(sizes), length)]
    steps = schedule(costs, [0.0] * len(costs), 1.0, period)
    return [steps[i // length] for i in range(len(sizes))]
