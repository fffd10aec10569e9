"""MATCHA: a base graph thinned to the matchings that connect it best (Wang et al., 2019, "MATCHA: speeding up decentralized SGD
via matching decomposition sampling").

The base graph is cut into matchings; in each round matching j takes part with probability p_j, by a coin that all nodes share.
The probabilities maximize the connectivity of the expected graph within the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from topology.base import Local, Member, Properties, Row, Topology
from topology.errors import TopologyError
from topology.hashing import unit
from topology.mixing import rest
from topology.registry import nested, register
from topology.weights import SPECTRUM_MAX

STEPS = 300
DIGITS = 3
"""Probabilities and the weight are rounded to so many digits, so that nodes with other linear algebra agree."""

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Thinned:
    """The matchings' partner tables, their probabilities, and the weight of an edge."""

    partners: tuple[dict[int, int], ...]
    probabilities: tuple[float, ...]
    weight: float


@register("matcha")
@dataclass(frozen=True)
class Matcha(Local[Thinned]):
    """A static graph thinned to what connects it best. `graph` names it; `budget` is the share of edges in use, on average."""

    graph: str = "torus"
    budget: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.budget <= 1:
            raise TopologyError(f"matcha: budget is a share of the edges, above 0 and at most 1, not {self.budget}")
        self._base()

    def refuses(self, n: int) -> str | None:
        """What its graph refuses, and numbers whose spectrum is too large."""
        if n > SPECTRUM_MAX:
            return f"matcha solves an eigenvalue problem: at most {SPECTRUM_MAX} members, not {n}"
        return self._base().refuses(n)

    def plan(self, members: Sequence[Member]) -> Thinned:
        """Matchings, probabilities and weight: some eigenvalue problems, once per view."""
        n, base = len(members), self._base()
        if not base.properties(n).symmetric or not base.properties(n).static:
            raise TopologyError(f"matcha thins a static symmetric graph, which {self.graph!r} isn't for {n} members; try torus")
        rows = base.whole(members, 0).rows
        matchings = colour(n, [(i, j) for i, row in enumerate(rows) for j in row if i < j])
        laplacians = [_laplacian(n, matching) for matching in matchings]
        probabilities = activation(laplacians, self.budget)
        limit = 1 / max((len(row) - 1 for row in rows), default=1) if matchings else 0.0
        partners = tuple({a: b for i, j in matching for a, b in ((i, j), (j, i))} for matching in matchings)
        return Thinned(partners, probabilities, best_weight(laplacians, probabilities, limit))

    def local(self, plan: Thinned, round: int, index: int) -> Row:
        """The matchings whose coin fell."""
        chosen = (k for k, p in enumerate(plan.probabilities) if unit(self.seed, round, k) < p)
        both = tuple(sorted((plan.partners[k][index], plan.weight) for k in chosen if index in plan.partners[k]))
        return Row(rest(w for _, w in both), both, both)

    def properties(self, n: int) -> Properties:
        """Symmetric; never repeats, unless everything is always on."""
        period = 1 if self.budget == 1 or n == 1 else None
        return Properties(symmetric=True, doubly_stochastic=True, mean_preserving=True, directed=False, period=period)

    def _base(self) -> Topology:
        return nested(self.graph)


def colour(n: int, edges: Iterable[Edge]) -> list[list[Edge]]:
    """The edges cut into matchings, first fit: fewer than twice the largest degree of them."""
    used: list[set[int]] = [set() for _ in range(n)]
    matchings: list[list[Edge]] = []
    for i, j in edges:
        free = next(c for c in range(len(matchings) + 1) if c not in used[i] and c not in used[j])
        if free == len(matchings):
            matchings.append([])
        matchings[free].append((i, j))
        used[i].add(free)
        used[j].add(free)
    return matchings


def activation(laplacians: Sequence[np.ndarray], budget: float) -> tuple[float, ...]:
    """Probabilities that maximize the second smallest eigenvalue of sum p_j L_j, with sum p_j at most the budget's share.

    That is concave, so projected ascent along the eigenvector's gradient finds it; the best point on the way is kept.
    """
    if not laplacians:
        return ()
    stack, total = np.stack(laplacians), budget * len(laplacians)
    p = best = np.full(len(laplacians), budget)
    most = -np.inf
    for step in range(STEPS):
        values, vectors = np.linalg.eigh(np.tensordot(p, stack, 1))
        if values[1] > most + 1e-6:
            most, best = values[1], p
        gradient = np.einsum("i,kij,j->k", vectors[:, 1], stack, vectors[:, 1])
        p = project(p + gradient / (1 + np.linalg.norm(gradient)) / np.sqrt(1 + step), total)
    return tuple(np.round(best, DIGITS).tolist())


def project(p: np.ndarray, total: float) -> np.ndarray:
    """The nearest point with 0 <= p_j <= 1 and the sum `total`: p - shift, cut off; the shift by bisection."""
    low, high = p.min() - 1, p.max()
    for _ in range(60):
        shift = (low + high) / 2
        low, high = (shift, high) if np.clip(p - shift, 0, 1).sum() > total else (low, shift)
    out: np.ndarray = np.clip(p - high, 0, 1)
    return out


def best_weight(laplacians: Sequence[np.ndarray], probabilities: Sequence[float], limit: float) -> float:
    """The weight in (0, limit] that makes ||E[W^T W] - J|| least, W = I - weight * (sum of the active L_j).

    E[W^T W] = I - 2a M + a^2 (M^2 + 2 sum p_j (1 - p_j) L_j), with M = sum p_j L_j, because L_j^2 = 2 L_j for a matching.
    Convex in a: golden section.
    """
    if not laplacians:
        return 0.0
    n = len(laplacians[0])
    p = np.array(probabilities)
    mean = np.tensordot(p, np.stack(laplacians), 1)
    square = mean @ mean + 2 * np.tensordot(p * (1 - p), np.stack(laplacians), 1)

    def error(a: float) -> float:
        return float(np.linalg.eigvalsh(np.eye(n) - 2 * a * mean + a * a * square - 1 / n)[-1])

    low, high, golden = 0.0, limit, (5**0.5 - 1) / 2
    for _ in range(40):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if error(left) < error(right) else (left, high)
    return min(round((low + high) / 2, DIGITS), limit)


def _laplacian(n: int, matching: Sequence[Edge]) -> np.ndarray:
    out = np.zeros((n, n))
    for i, j in matching:
        out[[i, j], [i, j]] += 1
        out[[i, j], [j, i]] -= 1
    return out
