"""Which layers to exchange in which step of a period, so that the exchange hides behind the computation.

After Tang et al., "DreamDDP" (2025): each layer travels once in a period, in a step of its own choice. In a step, a layer can
leave when its backward is done, one after the other, and the step waits for what has not arrived when its computation ends.
Least waiting is a packing problem; here the longest layer goes first to where it adds least, and then layers move, or change
places, as long as that helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

GAIN = 1e-9
"""By which share an exchange must spare waiting; less is rounding."""


def waiting(layers: Sequence[int], costs: Sequence[float], ready: Sequence[float], seconds: float) -> float:
    """Seconds that a step waits which exchanges these layers."""
    now = 0.0
    for layer in sorted(layers, key=ready.__getitem__):
        now = max(now, ready[layer]) + costs[layer]
    return max(0.0, now - seconds)


def schedule(costs: Sequence[float], ready: Sequence[float], seconds: float, period: int) -> list[int]:
    """The step of each layer, 0 to `period` - 1.

    Args:
        costs: Seconds that each layer takes on the link.
        ready: Seconds into a step after which it can leave; 0 for what travels during the next step.
        seconds: That a step computes.
    """

    def wait(layers: Sequence[int]) -> float:
        return waiting(layers, costs, ready, seconds)

    steps: list[list[int]] = [[] for _ in range(period)]
    for layer in sorted(range(len(costs)), key=lambda i: -costs[i]):

        def added(held: Sequence[int], layer: int = layer) -> tuple[float, float]:
            return round(wait([*held, layer]) - wait(held), 9), sum(costs[i] for i in held)

        min(steps, key=added).append(layer)
    while any(_improve(late, other, wait) for late in steps if wait(late) for other in steps if other is not late):
        pass
    return [next(step for step, held in enumerate(steps) if layer in held) for layer in range(len(costs))]


def _improve(first: list[int], second: list[int], wait: Callable[[Sequence[int]], float]) -> bool:
    """Let the layer move, or the two change places, that spares these two steps most; whether there is such a one."""
    before = wait(first) + wait(second)
    best = min(_exchanged(first, second), key=lambda pair: wait(pair[0]) + wait(pair[1]), default=(first, second))
    if wait(best[0]) + wait(best[1]) >= before * (1 - GAIN):
        return False
    first[:], second[:] = best
    return True


def _exchanged(first: list[int], second: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    """All ways in which at most one layer goes from each to the other."""
    for ours, theirs in product([[], *([i] for i in first)], [[], *([i] for i in second)]):
        yield [i for i in first if i not in ours] + theirs, [i for i in second if i not in theirs] + ours
