"""Base-(k+1): the exact average after a few rounds for every n, with at most k partners a round (Takezawa et al., 2023, "Beyond
exponential graph: communication-efficient topologies for decentralized learning via finite-time convergence").

A schedule answers (round, node) -> {partner: weight}; weights are mutual. Everything is arithmetic on positions, so a node's
row costs its degree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Protocol

from topology.base import Local, Member, Properties, Row
from topology.errors import bounded, unfit
from topology.mixing import rest
from topology.registry import register

Partners = dict[int, float]


class Schedule(Protocol):
    """One cycle of rounds."""

    @property
    def length(self) -> int:
        """Rounds in the cycle."""

    def partners(self, round: int, node: int) -> Partners:
        """Whom `node` meets in this round of the cycle, and the weight that they give each other."""


@cache
def factors(n: int, most: int) -> tuple[int, ...] | None:
    """n as a product of as few factors from 2 to `most` as can be, ascending; None if there is none."""
    if n == 1:
        return ()
    options = [(f, factors(n // f, most)) for f in range(2, min(most, n) + 1) if n % f == 0]
    products = [tuple(sorted((f, *others))) for f, others in options if others is not None]
    return min(products, key=lambda p: (len(p), p), default=None)


@dataclass(frozen=True, slots=True)
class HyperHypercube:
    """H_k(n): node numbers in mixed radix; in round l those that differ in digit l only average completely."""

    radix: tuple[int, ...]

    @property
    def length(self) -> int:
        """One round per digit."""
        return len(self.radix)

    def partners(self, round: int, node: int) -> Partners:
        """All other values of one digit."""
        stride = 1
        for factor in self.radix[:round]:
            stride *= factor
        factor = self.radix[round]
        first = node - node // stride % factor * stride
        return {j: 1 / factor for j in range(first, first + factor * stride, stride) if j != node}


@dataclass(frozen=True, slots=True)
class Part:
    """V_l of Simple Base: `count` subsets of `size` = (k + 1)^power nodes each, from `start` on; `tail` nodes follow."""

    start: int
    count: int
    size: int
    power: int
    tail: int
    inside: HyperHypercube
    subset: HyperHypercube

    @property
    def total(self) -> int:
        """Nodes in all subsets."""
        return self.count * self.size

    @property
    def weight(self) -> float:
        """Between a tail node and its partner in each subset: |V_l| / (a_l S_l)."""
        return self.size / (self.total + self.tail)


@dataclass(frozen=True, slots=True)
class SimpleBase:
    """Averages inside each part, then carries each part's mean to the tail behind it, then spreads it inside its subsets."""

    parts: tuple[Part, ...]

    @property
    def opening(self) -> int:
        """Rounds that the first and largest part takes for its own average."""
        return self.parts[0].inside.length

    @property
    def length(self) -> int:
        """The opening, one round with the tail, and the first part's subsets."""
        return self.opening + 1 + self.parts[0].power

    def partners(self, round: int, node: int) -> Partners:
        """By the phase that the node's own part is in."""
        own = next(i for i, part in enumerate(self.parts) if node < part.start + part.total)
        part, place = self.parts[own], node - self.parts[own].start
        if round < self.opening:
            return shifted(part.inside, round, place, part.start)
        meeting = round - self.opening
        if meeting < own:
            return self._with_head(meeting, node)
        return self._with_tail(part, place) if meeting == own else self._spread(part, meeting - own - 1, place)

    def _with_head(self, meeting: int, node: int) -> Partners:
        head = self.parts[meeting]
        place = node - head.start - head.total
        return {head.start + a * head.size + place: head.weight for a in range(head.count)}

    def _with_tail(self, part: Part, place: int) -> Partners:
        inside = place % part.size
        return {part.start + part.total + inside: part.weight} if inside < part.tail else {}

    def _spread(self, part: Part, since: int, place: int) -> Partners:
        if not part.tail:
            return {}
        subset = place // part.size
        return shifted(part.subset, since, place % part.size, part.start + subset * part.size)


def shifted(schedule: Schedule, round: int, place: int, start: int) -> Partners:
    """A schedule among the nodes from `start` on; after its end all are alone."""
    if round >= schedule.length:
        return {}
    return {start + j: w for j, w in schedule.partners(round, place).items()}


@dataclass(frozen=True, slots=True)
class Grouped:
    """The same schedule in groups of `size` in parallel, then H_k across the groups."""

    size: int
    inside: Schedule
    across: HyperHypercube

    @property
    def length(self) -> int:
        """Both, one after the other."""
        return self.inside.length + self.across.length

    def partners(self, round: int, node: int) -> Partners:
        """In the group first, then with the same place in other groups."""
        group, place = divmod(node, self.size)
        if round < self.inside.length:
            return shifted(self.inside, round, place, group * self.size)
        met = self.across.partners(round - self.inside.length, group)
        return {g * self.size + place: w for g, w in met.items()}


def simple_base(n: int, k: int) -> Schedule:
    """H_k(n) where n has no prime factor above k + 1, else the parts of n's digits in base k + 1."""
    smooth = factors(n, k + 1)
    return HyperHypercube(smooth) if smooth is not None else SimpleBase(tuple(_parts(n, k)))


def _parts(n: int, k: int) -> list[Part]:
    parts, start, power = [], 0, 0
    while (k + 1) ** (power + 1) <= n:
        power += 1
    for p in range(power, -1, -1):
        size = (k + 1) ** p
        count = (n - start) // size
        if count:
            inside, subset = factors(count * size, k + 1), (k + 1,) * p
            parts.append(
                Part(start, count, size, p, n - start - count * size, HyperHypercube(inside or ()), HyperHypercube(subset))
            )
            start += count * size
    return parts


@lru_cache(maxsize=64)
def base(n: int, k: int) -> Schedule:
    """The shorter of Simple Base of n, and Simple Base of n's rough part in groups with H_k across them."""
    smooth = 1
    for prime in range(2, k + 2):
        while n % (smooth * prime) == 0:
            smooth *= prime
    simple = simple_base(n, k)
    if smooth in (1, n):
        return simple
    grouped = Grouped(n // smooth, simple_base(n // smooth, k), HyperHypercube(factors(smooth, k + 1) or ()))
    return min(grouped, simple, key=lambda schedule: schedule.length)


@dataclass(frozen=True)
class _Scheduled(Local[tuple[int, int]]):
    k: int = 1

    def __post_init__(self) -> None:
        bounded(f"{self.name}: k, the most partners in a round,", self.k, 1)

    def plan(self, members: Sequence[Member]) -> tuple[int, int]:
        """(n, k): the schedule is remembered by them."""
        return len(members), self.k

    def local(self, plan: tuple[int, int], round: int, index: int) -> Row:
        """Mutual weights of this round of the cycle."""
        schedule = base(*plan)
        if not schedule.length:
            return Row(1.0, (), ())
        met = schedule.partners(round % schedule.length, index)
        both = tuple(sorted(met.items()))
        return Row(rest(met.values()), both, both)

    def properties(self, n: int) -> Properties:
        """Exact after one period."""
        schedule = base(n, self.k)
        return Properties(
            symmetric=True,
            doubly_stochastic=True,
            mean_preserving=True,
            regular=isinstance(schedule, HyperHypercube),
            directed=False,
            period=max(schedule.length, 1),
            finite_time=True,
        )


@register("base")
@dataclass(frozen=True)
class Base(_Scheduled):
    """Base-(k+1): exact for every n after at most 2 log n / log(k + 1) + 2 rounds, k partners in each at most."""


@register("hyper-hypercube")
@dataclass(frozen=True)
class KPeerHyperHypercube(_Scheduled):
    """Base-(k+1) without its detours: as few rounds as can be, for n without a prime factor above k + 1."""

    def refuses(self, n: int) -> str | None:
        """Numbers with a larger prime factor."""
        what = f"numbers without a prime factor above {self.k + 1}"
        return unfit(f"hyper-hypercube:k={self.k}", what, n, lambda m: factors(m, self.k + 1) is not None)

    def properties(self, n: int) -> Properties:
        """As Base-(k+1) where n is taken."""
        return Properties() if self.refuses(n) else super().properties(n)
