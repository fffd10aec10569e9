"""Momentum under asynchrony: stale updates act like momentum themselves, so the optimizer should add only the rest.

Hadjis et al., "Omnivore" (2016), after Mitliagkas et al., "Asynchrony begets Momentum" (2016): g groups that update
asynchronously have an implicit momentum of 1 - 1/g. Here g is measured: 1 + the mean staleness.
"""

from __future__ import annotations


def implicit_momentum(staleness: float) -> float:
    """Of updates that are so many steps old on average; partners that are ahead count as in step."""
    return 1 - 1 / (1 + max(staleness, 0.0))


def explicit_momentum(target: float, staleness: float) -> float:
    """What the optimizer should use, so that both together come to `target`; never negative."""
    return max(0.0, target - implicit_momentum(staleness))
