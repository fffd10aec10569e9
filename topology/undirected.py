"""Undirected: a static graph is a list of edges and a weight rule."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from topology.base import Local, Member, Properties, Row
from topology.measure import DENSE_MAX, canonical
from topology.mixing import Mixing, adjacency, rest
from topology.weights import Neighbours, Weight, rule


@dataclass(frozen=True, slots=True)
class Weighted:
    """Neighbour lists and the weight of each edge."""

    near: Neighbours
    weight: Weight

    def row(self, index: int) -> Row:
        """Node `index`'s row."""
        near = self.near[index]
        ins = tuple((j, self.weight(index, j)) for j in near)
        return Row(rest(w for _, w in ins), tuple((j, self.weight(j, index)) for j in near), ins)


@dataclass(frozen=True)
class Undirected(Local[Weighted]):
    """A static undirected graph; a family writes `edges`."""

    weights: str = "metropolis"
    """metropolis, lazy, uniform, max-degree or best-constant."""
    even: ClassVar[bool] = False
    """All nodes have equally many neighbours, whatever n."""
    tree: ClassVar[bool] = False
    """The edges have no cycle, whatever n."""
    positional: ClassVar[bool] = True
    """The edges depend on n alone, not on who the members are."""

    def __post_init__(self) -> None:
        rule(self.weights)

    @abstractmethod
    def edges(self, members: Sequence[Member]) -> Iterable[tuple[int, int]]:
        """The edges (i, j) between positions; order, doubles and loops don't matter."""

    def plan(self, members: Sequence[Member]) -> Weighted:
        """Neighbour lists, once per view."""
        near = adjacency(len(members), self.edges(members))
        plan = Weighted(near, rule(self.weights)(near))
        if self.weights == "best-constant":  # the only rule that can leave a negative self weight
            Mixing.of([plan.row(i) for i in range(len(near))]).validate([m.id for m in members])
        return plan

    def local(self, plan: Weighted, round: int, index: int) -> Row:
        """The same in every round."""
        return plan.row(index)

    def properties(self, n: int) -> Properties:
        """Symmetric and doubly stochastic, but for uniform weights on an uneven graph."""
        sound = self.weights != "uniform" or self.even
        return Properties(
            symmetric=sound,
            doubly_stochastic=sound,
            mean_preserving=sound,
            regular=self.even,
            directed=False,
            period=1,
            tree=self.tree,
            smallest_eigenvalue=self._smallest(n) if sound else None,
        )

    def _smallest(self, n: int) -> float | None:
        if self.weights == "lazy":
            return 0.0
        return _smallest_eigenvalue(self, n) if self.positional and n <= DENSE_MAX and not self.refuses(n) else None


@lru_cache(maxsize=256)
def _smallest_eigenvalue(topology: Undirected, n: int) -> float:
    return float(np.linalg.eigvalsh(topology.whole(canonical(n), 0).matrix())[0])
