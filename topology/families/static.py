"""Static undirected graphs given by a formula."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from topology.base import Member
from topology.errors import bounded, unfit
from topology.registry import register
from topology.undirected import Undirected

Edges = Iterable[tuple[int, int]]


@register("ring")
@dataclass(frozen=True)
class Ring(Undirected):
    """Node i with i - 1 and i + 1. A joining node replaces one edge by two."""

    even = True

    def edges(self, members: Sequence[Member]) -> Edges:
        """Round and back to the first."""
        n = len(members)
        return ((i, (i + 1) % n) for i in range(n))


@register("chain")
@dataclass(frozen=True)
class Chain(Undirected):
    """A ring with one edge cut."""

    tree = True

    def edges(self, members: Sequence[Member]) -> Edges:
        """From the first to the last."""
        return ((i, i + 1) for i in range(len(members) - 1))


@register("star")
@dataclass(frozen=True)
class Star(Undirected):
    """The first member with everybody: the shape of a parameter server, for comparison."""

    tree = True

    def edges(self, members: Sequence[Member]) -> Edges:
        """All from the centre."""
        return ((0, i) for i in range(1, len(members)))


@dataclass(frozen=True)
class _Lattice(Undirected):
    """Rows and columns. Without a number of rows, as square as n allows; a prime n has one row."""

    rows: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(f"{self.name}: rows (0: as square as can be)", self.rows, 0)

    def refuses(self, n: int) -> str | None:
        """Numbers that the given rows don't divide."""
        return unfit(f"{self.name}:rows={self.rows}", f"multiples of {self.rows}", n, lambda m: m % (self.rows or 1) == 0)

    def remark(self, n: int) -> str | None:
        """Primes have no second row."""
        one_row = n > 3 and self.shape(n)[0] == 1
        return f"{n} members stand in one row; a number with two factors mixes faster" if one_row else None

    def shape(self, n: int) -> tuple[int, int]:
        """(rows, columns)."""
        rows = self.rows or next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
        return rows, n // rows


@register("grid")
@dataclass(frozen=True)
class Grid(_Lattice):
    """Neighbours left, right, above and below; no wrap."""

    def edges(self, members: Sequence[Member]) -> Edges:
        """To the right and down."""
        rows, columns = self.shape(len(members))
        for i in range(rows * columns):
            if (i + 1) % columns:
                yield i, i + 1
            if i + columns < rows * columns:
                yield i, i + columns


@register("torus")
@dataclass(frozen=True)
class Torus(_Lattice):
    """A grid that wraps at its ends; with two rows both wraps are the same edge, with one row it is a ring."""

    even = True

    def edges(self, members: Sequence[Member]) -> Edges:
        """To the right and down, and round."""
        rows, columns = self.shape(len(members))
        for r in range(rows):
            for c in range(columns):
                yield r * columns + c, r * columns + (c + 1) % columns
                yield r * columns + c, (r + 1) % rows * columns + c


@register("hypercube")
@dataclass(frozen=True)
class Hypercube(Undirected):
    """Powers of two only: i with every number that differs in one bit."""

    even = True

    def refuses(self, n: int) -> str | None:
        """Everything but powers of two."""
        return unfit(self.name, "powers of two", n, lambda m: m & (m - 1) == 0)

    def edges(self, members: Sequence[Member]) -> Edges:
        """One for each bit."""
        n = len(members)
        return ((i, i ^ (1 << k)) for i in range(n) for k in range((n - 1).bit_length()))


@register("binary-tree")
@dataclass(frozen=True)
class BinaryTree(Undirected):
    """Node i below (i - 1) // 2."""

    tree = True

    def edges(self, members: Sequence[Member]) -> Edges:
        """To the parent."""
        return ((i, (i - 1) // 2) for i in range(1, len(members)))
