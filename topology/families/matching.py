"""Matchings: in each round everybody has one partner at most, and both give each other the same weight."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from topology.base import ALONE, Local, Member, Plan, Properties, Row
from topology.errors import TopologyError
from topology.families.circulant import log2_up
from topology.hashing import Keys, below, draw, keys, mix, predecessor, rank, successor
from topology.registry import register


def pair(row_weight: float, partner: int | None) -> Row:
    """The row of a node with this partner, or with none."""
    if partner is None:
        return ALONE
    other = ((partner, row_weight),)
    return Row(1 - row_weight, other, other)


def at_distance(n: int, distance: int, start: int, index: int) -> int | None:
    """`index`'s partner if i and i + distance are matched greedily from `start` on; distance is n / 2 at most.

    Counted from `start`, blocks of `distance` nodes alternate between those that look ahead and those that are found; ahead of
    the last ones there may be nobody.
    """
    offset = (index - start) % n
    if offset // distance % 2:
        return (index - distance) % n
    return (index + distance) % n if offset + distance < n else None


class Matching(Local[Plan]):
    """A family writes `partner`."""

    def weight(self, n: int) -> float:
        """What partners give each other."""
        return 0.5

    @abstractmethod
    def partner(self, plan: Plan, round: int, index: int) -> int | None:
        """Who `index` meets, None for nobody. Mutual."""

    @abstractmethod
    def count(self, plan: Plan) -> int:
        """n."""

    def local(self, plan: Plan, round: int, index: int) -> Row:
        """Half and half, or alone."""
        n = self.count(plan)
        return pair(self.weight(n), self.partner(plan, round, index) if n > 1 else None)


class Placed(Matching[int]):
    """Partners follow from positions."""

    def plan(self, members: Sequence[Member]) -> int:
        """n is all that matters."""
        return len(members)

    def count(self, plan: int) -> int:
        """The plan."""
        return plan


@register("exponential-matching")
@dataclass(frozen=True)
class ExponentialMatching(Placed):
    """Pairs 1, 2, 4 ... apart in turn: for powers of two the hypercube's dimensions, and exact; else some stay alone."""

    def partner(self, plan: int, round: int, index: int) -> int | None:
        """Blocks of a power of two."""
        distance = 1 << round % log2_up(plan)
        return index ^ distance if index ^ distance < plan else None

    def properties(self, n: int) -> Properties:
        """Exact for powers of two."""
        power = n & (n - 1) == 0
        return Properties(
            symmetric=True,
            doubly_stochastic=True,
            mean_preserving=True,
            regular=power,
            directed=False,
            period=max(log2_up(n), 1),
            finite_time=power,
        )


@register("ou-equidyn")
@dataclass(frozen=True)
class OUEquiDyn(Placed):
    """Pairs at one random distance a round, matched greedily from a random start (Song et al., 2022).

    A distance and n minus it make the same pairs, so the shorter is taken.
    """

    eta: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.eta <= 1:
            raise TopologyError(f"ou-equidyn: eta must be above 0 and at most 1, not {self.eta}")

    def weight(self, n: int) -> float:
        """eta (n - 1) / n."""
        return self.eta * (n - 1) / n

    def partner(self, plan: int, round: int, index: int) -> int | None:
        """Two draws, the same for all."""
        distance = 1 + below(plan - 1, self.seed, round, 0)
        return at_distance(plan, min(distance, plan - distance), below(plan, self.seed, round, 1), index)

    def properties(self, n: int) -> Properties:
        """Symmetric; never repeats."""
        return Properties(
            symmetric=True,
            doubly_stochastic=True,
            mean_preserving=True,
            directed=False,
            period=None if n > 2 else 1,
        )


class Keyed(Local[Keys]):
    """Fresh randomness in each round, from hashes of the member ids."""

    seed: int

    def plan(self, members: Sequence[Member]) -> Keys:
        """One key per member."""
        return keys(members, self.seed)

    def shuffled(self, plan: Keys, round: int, layer: int) -> Keys:
        """The keys of one round; their order is a random order of the members."""
        return mix(plan, draw(self.seed, round, layer))


def neighbour_in_pairs(at: Keys, index: int) -> int | None:
    """The partner, if the order of keys is cut in pairs; an odd last one has none."""
    place = rank(at, index)
    if place % 2:
        return predecessor(at, index)
    return successor(at, index) if place + 1 < len(at) else None


@register("random-matching")
@dataclass(frozen=True)
class RandomMatching(Keyed, Matching[Keys]):
    """A fresh perfect matching each round (Boyd et al., 2006, "Randomized gossip algorithms", in step)."""

    seed: int = 0

    def count(self, plan: Keys) -> int:
        """One key each."""
        return len(plan)

    def partner(self, plan: Keys, round: int, index: int) -> int | None:
        """Neighbours in the order of this round's hashes."""
        return neighbour_in_pairs(self.shuffled(plan, round, 0), index)

    def properties(self, n: int) -> Properties:
        """Symmetric; never repeats."""
        return Properties(
            symmetric=True,
            doubly_stochastic=True,
            mean_preserving=True,
            regular=n % 2 == 0,
            directed=False,
            period=None if n > 2 else 1,
        )
