"""Static random graphs, keyed by member ids: the same seed and members give the same graph on every node, and a joining
member moves only the edges that it takes part in, and a few more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from topology.base import Member
from topology.errors import TopologyError, TopologyRefused, bounded, unfit
from topology.hashing import draw, keys, mix
from topology.registry import register
from topology.undirected import Undirected

TRIES = 64
CHUNK = 64
"""Rows at a time: what fits into the cache is several times as fast."""

Edge = tuple[int, int]


@register("regular")
@dataclass(frozen=True)
class Regular(Undirected):
    """Everybody has `degree` partners at random: an expander, whose gap doesn't shrink with n (Friedman, 2008).

    The union of degree // 2 Hamiltonian cycles, each in the order of a hash of the ids, and a perfect matching for odd degrees;
    edges that coincide are swapped apart. The first cycle alone connects everybody.
    """

    degree: int = 4
    seed: int = 0
    even = True
    positional = False

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded("regular: degree", self.degree, 2)  # one partner each doesn't connect all

    def refuses(self, n: int) -> str | None:
        """n * degree odd, or not above the degree; 1 and 2 members are let through, with the partners that there are."""
        takes = f"{'even ' if self.degree % 2 else ''}numbers above {self.degree}, 1 and 2"
        return unfit(
            f"regular:degree={self.degree}", takes, n, lambda m: m < 3 or (m > self.degree and m * self.degree % 2 == 0)
        )

    def edges(self, members: Sequence[Member]) -> Iterable[Edge]:
        """Cycles, or the pairs that a sparser regular graph leaves out."""
        n = len(members)
        if n < 3:
            return [(0, n - 1)]
        if self.degree < n / 2:
            return self._sparse(members, self.degree)
        without = self._sparse(members, n - 1 - self.degree)
        return ((i, j) for i in range(n) for j in range(i) if (j, i) not in without)

    def _sparse(self, members: Sequence[Member], degree: int) -> set[Edge]:
        at = keys(members, self.seed)
        for attempt in range(TRIES):
            used: set[Edge] = set()
            layers = [(2, c) for c in range(degree // 2)] + [(1, degree)] * (degree % 2)
            if all(_add_layer(used, np.argsort(mix(at, draw(attempt, c))).tolist(), kind) for kind, c in layers):
                return used
        raise TopologyRefused(f"regular:degree={self.degree} found no graph for {len(members)} members; use a smaller degree")


def _add_layer(used: set[Edge], order: list[int], kind: int) -> bool:
    """Adds a cycle (kind 2) or a matching (kind 1) in this order, after swapping apart what is there already."""
    n = len(order)
    for k in range(0, n, 3 - kind):
        swap = (k + 1) % n
        if not _clashes(used, order, k, kind):
            continue
        for step in range(1, n):
            other = (swap + step) % n
            order[swap], order[other] = order[other], order[swap]
            if not any(_clashes(used, order, p, kind) for p in (k, swap, other - 1, other, k - 1)):
                break
            order[swap], order[other] = order[other], order[swap]
        else:
            return False
    layer = [_edge(order, k) for k in range(0, n, 3 - kind)]
    if used.intersection(layer):
        return False
    used.update(layer)
    return True


def _clashes(used: set[Edge], order: list[int], k: int, kind: int) -> bool:
    k %= len(order)
    return (kind == 2 or k % 2 == 0) and _edge(order, k) in used


def _edge(order: list[int], k: int) -> Edge:
    i, j = order[k], order[(k + 1) % len(order)]
    return (i, j) if i < j else (j, i)


@register("erdos-renyi")
@dataclass(frozen=True)
class ErdosRenyi(Undirected):
    """Every pair with probability p, and a ring, so that nobody is cut off. Without p: 2 ln n / n, above the threshold of
    connectedness. A pair's coin is a hash of both ids: who joins flips only its own coins."""

    p: float = 0.0
    seed: int = 0
    positional = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.p <= 1:
            raise TopologyError(f"erdos-renyi: p is a probability, from 0 (automatic) to 1, not {self.p}")

    def edges(self, members: Sequence[Member]) -> Iterable[Edge]:
        """The ring, then the coins."""
        n = len(members)
        yield from ((i, (i + 1) % n) for i in range(n))
        p = self.p or min(1.0, 2 * math.log(n) / n)
        threshold = np.uint32(min(int(p * 2**32), 2**32 - 1))
        short = keys(members, self.seed).astype(np.uint32)
        for start in range(0, n, CHUNK):
            rows, columns = np.nonzero(_coins(short[start : start + CHUNK, None] ^ short[None, start:]) < threshold)
            yield from zip((rows + start).tolist(), (columns + start).tolist(), strict=True)


def _coins(x: np.ndarray) -> np.ndarray:
    """The middle of murmur3's finalizer, in place; the high bits, which the comparison looks at, depend on all others."""
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    return x


@register("small-world")
@dataclass(frozen=True)
class SmallWorld(Undirected):
    """A ring lattice of the k nearest, each edge beyond the ring itself rewired with probability beta (Watts & Strogatz, 1998).

    The ring stays, so nobody is cut off. A rewired edge's far end is the member that follows a hash on the circle of ids.
    """

    k: int = 4
    beta: float = 0.2
    seed: int = 0
    positional = False

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded("small-world: k", self.k, 2)
        if self.k % 2 or not 0 <= self.beta <= 1:
            raise TopologyError(f"small-world: k is even, beta from 0 to 1; not k={self.k}, beta={self.beta}")

    def edges(self, members: Sequence[Member]) -> Iterable[Edge]:
        """The ring, then for each distance from 2 the near or the rewired one."""
        n = len(members)
        yield from ((i, (i + 1) % n) for i in range(n))
        at = keys(members, self.seed)
        circle = np.argsort(at)
        for distance in range(2, self.k // 2 + 1):
            coins, targets = mix(at, draw(self.seed, distance, 0)), mix(at, draw(self.seed, distance, 1))
            far = circle[np.searchsorted(at[circle], targets) % n]
            rewired = coins < np.uint64(min(int(self.beta * 2**64), 2**64 - 1))
            ends = np.where(rewired, far, (np.arange(n) + distance) % n)
            yield from enumerate(ends.tolist())
