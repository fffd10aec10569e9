"""How fast a topology averages: the contraction of a cycle, and rounds to a given error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

from topology.base import Member, Topology
from topology.links import Links, load

WINDOW = 64
"""Rounds that stand for a period where there is none."""
PATIENCE = 4096
"""Rounds after which a topology without a period is given up."""
NEVER = 1 - 1e-9
"""A cycle that contracts less than this doesn't converge."""


def error(product: np.ndarray) -> float:
    """||product - J||, the 2-norm: what is left of the worst disagreement."""
    return float(np.linalg.norm(product - 1 / len(product), 2))


def is_below(product: np.ndarray, epsilon: float) -> bool:
    """Whether the error is below epsilon; the singular values are asked only where the Frobenius norm leaves it open."""
    frobenius = float(np.linalg.norm(product - 1 / len(product)))
    if frobenius < epsilon or frobenius >= epsilon * math.sqrt(len(product)):
        return frobenius < epsilon
    return error(product) < epsilon


def matrices(topology: Topology, members: Sequence[Member]) -> list[np.ndarray]:
    """The matrices of one period, or of a window where there is none."""
    period = topology.properties(len(members)).period or WINDOW
    return [topology.whole(members, t).matrix() for t in range(period)]


def products(topology: Topology, members: Sequence[Member]) -> Iterator[np.ndarray]:
    """The product of the first t rounds, for t = 1, 2 ... without end."""
    cycle = matrices(topology, members)
    periodic = topology.properties(len(members)).period is not None
    out, t = np.eye(len(members)), 0
    while True:
        out = (cycle[t % len(cycle)] if periodic else topology.whole(members, t).matrix()) @ out
        t += 1
        yield out


def contraction(topology: Topology, members: Sequence[Member]) -> float:
    """||product of one period - J||: 0 is exact; 1 minus it is the spectral gap."""
    return error(multiplied(matrices(topology, members)))


def multiplied(cycle: Sequence[np.ndarray]) -> np.ndarray:
    """The last round leftmost."""
    return reduce(lambda done, w: np.asarray(w @ done), cycle)


def rounds_to(topology: Topology, members: Sequence[Member], epsilon: float = 1e-3) -> int | None:
    """Rounds until ||product - J|| < epsilon; None if that never comes (the mean moves, or somebody is cut off)."""
    if topology.properties(len(members)).period is None:
        few = zip(range(1, PATIENCE), products(topology, members), strict=False)
        return next((t for t, product in few if is_below(product, epsilon)), None)
    return rounds_of(matrices(topology, members), epsilon)


def rounds_of(cycle: Sequence[np.ndarray], epsilon: float) -> int | None:
    """The same for a cycle of matrices: whole cycles by repeated squaring, then round by round."""
    done, rounds = np.eye(len(cycle[0])), 0
    powers = [multiplied(cycle)]
    while not is_below(powers[-1], epsilon):
        if len(powers) > 40 or error(powers[-1]) > NEVER ** (1 << (len(powers) - 1)):
            return None
        powers.append(powers[-1] @ powers[-1])
    for k in range(len(powers) - 1, -1, -1):
        if not is_below(powers[k] @ done, epsilon):
            done, rounds = powers[k] @ done, rounds + (len(cycle) << k)
    for w in cycle:
        if is_below(done, epsilon):
            break
        done, rounds = w @ done, rounds + 1
    return rounds


def seconds_to(topology: Topology, members: Sequence[Member], links: Links, payload: float, epsilon: float = 1e-3) -> float:
    """Seconds until ||product - J|| < epsilon, if every round takes as long as its slowest link; infinite if never.

    `links` are in the members' order, `payload` is what one arc carries in a round, in bytes.
    """
    rounds = rounds_to(topology, members, epsilon)
    if rounds is None:
        return math.inf
    period = min(topology.properties(len(members)).period or rounds, max(rounds, 1))
    cycle = [load(topology.whole(members, t), members, links, payload).seconds for t in range(period)]
    whole, rest = divmod(rounds, period)
    return whole * sum(cycle) + sum(cycle[:rest])
