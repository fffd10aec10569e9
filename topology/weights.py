"""Weight rules: from an undirected graph to the weight that node i gives to its neighbour j's value.

A rule takes the neighbour lists of all nodes and returns the function (i, j) -> w_ij; what is left of row i is i's self weight.
Metropolis: Xiao & Boyd, "Fast linear iterations for distributed averaging", 2004, as is the best constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from topology.errors import TopologyError

Neighbours = Sequence[Sequence[int]]
Weight = Callable[[int, int], float]
Rule = Callable[[Neighbours], Weight]

SPECTRUM_MAX = 2048
"""Nodes up to which a rule may look at the spectrum: a dense eigenvalue problem of that size takes a second or two."""


def metropolis(neighbours: Neighbours) -> Weight:
    """1 / (1 + max(d_i, d_j)): symmetric and doubly stochastic on any graph."""
    return lambda i, j: 1 / (1 + max(len(neighbours[i]), len(neighbours[j])))


def lazy(neighbours: Neighbours) -> Weight:
    """Metropolis, halved: half of the value always stays, so no eigenvalue is negative."""
    return lambda i, j: 0.5 / (1 + max(len(neighbours[i]), len(neighbours[j])))


def uniform(neighbours: Neighbours) -> Weight:
    """1 / (1 + d_i): on an irregular graph only row-stochastic, the mean leans towards high degrees."""
    return lambda i, j: 1 / (1 + len(neighbours[i]))


def max_degree(neighbours: Neighbours) -> Weight:
    """1 / (1 + the largest degree): symmetric, slower than Metropolis where degrees differ."""
    weight = 1 / (1 + max(map(len, neighbours), default=0))
    return lambda i, j: weight


def best_constant(neighbours: Neighbours) -> Weight:
    """2 / (largest + second smallest eigenvalue of the Laplacian): the fastest with one weight for all edges.

    On irregular graphs it may leave a negative self weight; the mixing then is refused, see `Mixing.validate`.
    """
    if len(neighbours) < 2:
        return lambda i, j: 0.0
    spectrum = np.linalg.eigvalsh(laplacian(neighbours))
    weight = float(2 / (spectrum[1] + spectrum[-1]))
    return lambda i, j: weight


def laplacian(neighbours: Neighbours) -> np.ndarray:
    """The dense Laplacian, (n, n)."""
    n = len(neighbours)
    if n > SPECTRUM_MAX:
        raise TopologyError(f"the spectrum of {n} nodes is too large to compute (limit {SPECTRUM_MAX}); use metropolis weights")
    out = np.zeros((n, n))
    for i, near in enumerate(neighbours):
        out[i, i] = len(near)
        out[i, list(near)] = -1
    return out


RULES: dict[str, Rule] = {
    "metropolis": metropolis,
    "lazy": lazy,
    "uniform": uniform,
    "max-degree": max_degree,
    "best-constant": best_constant,
}


def rule(name: str) -> Rule:
    """The rule of that name. Raises TopologyError with the names that exist."""
    if name not in RULES:
        raise TopologyError(f"there is no weight rule {name!r}; use one of {', '.join(RULES)}")
    return RULES[name]
