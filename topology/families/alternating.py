"""Static graphs in turn: the two trees of a double tree, and machines that use their network link by halves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from topology.base import Local, Member, Properties, Row
from topology.errors import bounded, unfit
from topology.mixing import rest
from topology.registry import register


@register("double-tree")
@dataclass(frozen=True)
class DoubleTree(Local[int]):
    """A binary tree in even rounds, the same with reversed labels in odd ones: inner nodes of one are leaves of the other."""

    def plan(self, members: Sequence[Member]) -> int:
        """n is all that matters."""
        return len(members)

    def local(self, plan: int, round: int, index: int) -> Row:
        """Parent and children, with Metropolis weights."""
        place = index if round % 2 == 0 else plan - 1 - index
        near = tree_neighbours(plan, place)
        weights = [1 / (1 + max(len(near), len(tree_neighbours(plan, j)))) for j in near]
        both = tuple(sorted((j if round % 2 == 0 else plan - 1 - j, w) for j, w in zip(near, weights, strict=True)))
        return Row(rest(weights), both, both)

    def properties(self, n: int) -> Properties:
        """Symmetric; two rounds."""
        return Properties(
            symmetric=True,
            doubly_stochastic=True,
            mean_preserving=True,
            directed=False,
            period=2 if n > 2 else 1,
            finite_time=n < 3,
        )


def tree_neighbours(n: int, i: int) -> list[int]:
    """In the tree where i hangs below (i - 1) // 2."""
    parent = [(i - 1) // 2] if i else []
    return parent + [c for c in (2 * i + 1, 2 * i + 2) if c < n]


@register("alternating-exponential-ring")
@dataclass(frozen=True)
class AlternatingExponentialRing(Local[int]):
    """Machines average in pairs, half of them at once. There are 2^m, of `ranks` consecutive members each.

    For each power of two, pairs of machines that far apart average jointly in one round, and each alone in the other; every
    second pair does it the other way round, so only half of the machines use the network at a time. Exact after two rounds per
    power (Wang et al., 2025, "From promise to practice: realizing high-performance decentralized training").
    """

    ranks: int = 1

    def __post_init__(self) -> None:
        bounded(f"{self.name}: ranks, the members per machine,", self.ranks, 1)

    def refuses(self, n: int) -> str | None:
        """Anything but ranks times a power of two."""
        what = "powers of two" if self.ranks == 1 else f"{self.ranks} times powers of two"
        return unfit(f"{self.name}:ranks={self.ranks}", what, n, lambda m: m in self._takes(m))

    def plan(self, members: Sequence[Member]) -> int:
        """The number of machines."""
        return len(members) // self.ranks

    def local(self, plan: int, round: int, index: int) -> Row:
        """All of the own machine, and of the partner's in the joint round."""
        turn = round % self._rounds(plan)
        machine, apart = index // self.ranks, 1 << turn // 2
        first = machine & ~apart
        number = (first // (2 * apart)) * apart + first % apart
        joint = plan > 1 and number % 2 == turn % 2
        group = [m * self.ranks + r for m in ((first, first | apart) if joint else (machine,)) for r in range(self.ranks)]
        both = tuple((j, 1 / len(group)) for j in group if j != index)
        return Row(1 / len(group), both, both)

    def properties(self, n: int) -> Properties:
        """Exact after a period."""
        return Properties(
            symmetric=True,
            doubly_stochastic=True,
            mean_preserving=True,
            regular=n <= self.ranks,
            directed=False,
            period=self._rounds(n // self.ranks),
            finite_time=True,
        )

    def _rounds(self, machines: int) -> int:
        return max(2 * (machines - 1).bit_length(), 1)

    def _takes(self, most: int) -> Iterable[int]:
        size = self.ranks
        while size <= most:
            yield size
            size *= 2
