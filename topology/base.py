"""The contract: members and a round number in, who gives what weight to whom out.

A user's topology is a `Topology` with one method, `mixing`. A built-in family is a `Local`: it computes one node's row near
O(degree), from a plan that is made once per view. Both are deterministic in (members, round), so nodes with the same view
agree without a word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from topology.errors import TopologyError, TopologyRefused
from topology.mixing import ALONE, Mixing, Row

if TYPE_CHECKING:
    from topology.links import Links

__all__ = ["ALONE", "Local", "Member", "Mixing", "Properties", "Recent", "Row", "Topology", "TopologyError", "TopologyRefused"]

Key = TypeVar("Key")
Plan = TypeVar("Plan")


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """What a topology may know of a node; sorted by id."""

    id: str
    site: str = ""
    speed: float = 1.0
    dial_only: bool = False


@dataclass(frozen=True, slots=True)
class Properties:
    """What a topology promises for every round; False promises nothing."""

    symmetric: bool = False
    doubly_stochastic: bool = False
    """Rows and columns sum to 1: a fixed point, and the mean stays."""
    mean_preserving: bool = False
    """Columns sum to 1."""
    regular: bool = False
    """In every round all nodes have equally many partners."""
    directed: bool = True
    """Somebody may give weight to a node that gives none back."""
    period: int | None = None
    """After so many rounds it starts again; None: never."""
    finite_time: bool = False
    """The product over a period is the exact average."""
    tree: bool = False
    """In every round the same edges, both ways, without a cycle."""
    smallest_eigenvalue: float | None = None
    """Where known; static symmetric topologies only."""

    @property
    def static(self) -> bool:
        """Every round is the same."""
        return self.period == 1


class Recent(Generic[Key, Plan]):
    """The last few results. The whole memory is one tuple, replaced at once, so threads need no lock."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: tuple[tuple[Key, Plan], ...] = ()

    def get(self, key: Key, make: Callable[[], Plan]) -> Plan:
        """What is remembered for the key, or what `make` returns."""
        for known, value in self._items:
            if known is key or known == key:
                return value
        value = make()
        self._items = ((key, value), *self._items[: self._size - 1])
        return value


class Topology(ABC):
    """Who talks with whom. Write `mixing`; everything else follows."""

    name: str = ""
    """What it is called on the command line; set by `register`."""
    measured: ClassVar[bool] = False
    """Whether it looks at links: it is then `given` those that members have measured, and new ones when they change."""

    @abstractmethod
    def mixing(self, members: Sequence[Member], round: int) -> Mixing:
        """The whole sparse graph of this round. `members` are sorted by id, positions are what `Mixing` speaks of."""

    def given(self, links: Links) -> Topology:
        """The same with these links; itself where it looks at none."""
        return self

    def refuses(self, n: int) -> str | None:
        """Why n members can't be taken, with the nearest number that can; None if they can."""
        return None

    def remark(self, n: int) -> str | None:
        """What a user should know who takes n members; None for nothing."""
        return None

    def properties(self, n: int) -> Properties:
        """What holds for n members: measured on the first rounds here, declared by the built-in families."""
        from topology.measure import measured

        return self._measured.get(n, lambda: measured(self, n))

    def row(self, members: Sequence[Member], round: int, index: int) -> Row:
        """Node `index`'s part of `whole`."""
        return self.whole(members, round).row(index)

    def whole(self, members: Sequence[Member], round: int) -> Mixing:
        """The round as all see it: `mixing`, validated, without pairs of dial-only members, and remembered.

        Raises TopologyRefused if it can't take so many members, TopologyError if `mixing` is wrong, saying how.
        """
        return self._wholes.get((round, members), lambda: self._make_whole(members, round))

    def _make_whole(self, members: Sequence[Member], round: int) -> Mixing:
        self._admit(len(members))
        mixing = self.mixing(members, round)
        if not isinstance(mixing, Mixing):
            raise TopologyError(f"{type(self).__name__}.mixing returned a {type(mixing).__name__}; make a Mixing of it")
        if mixing.n != len(members):
            raise TopologyError(f"{type(self).__name__}.mixing is for {mixing.n} members, but there are {len(members)}")
        mixing.validate([member.id for member in members])
        return self._reachable(members, mixing)

    def _admit(self, n: int) -> None:
        if reason := self.refuses(n):
            raise TopologyRefused(reason)

    def _reachable(self, members: Sequence[Member], mixing: Mixing) -> Mixing:
        dialers = self._dialers(members)
        if len(dialers) < 2:
            return mixing
        double, pushes = mixing.doubly_stochastic, mixing.mean_preserving
        return Mixing.of([without_pairs(mixing.row(i), i in dialers, dialers, double, pushes) for i in range(mixing.n)])

    def _dialers(self, members: Sequence[Member]) -> frozenset[int]:
        """Positions of the members that can only dial out."""
        return self._dial_only.get(members, lambda: frozenset(i for i, m in enumerate(members) if m.dial_only))

    @cached_property
    def _wholes(self) -> Recent[tuple[int, Sequence[Member]], Mixing]:
        return Recent(8)

    @cached_property
    def _dial_only(self) -> Recent[Sequence[Member], frozenset[int]]:
        return Recent(4)

    @cached_property
    def _measured(self) -> Recent[int, Properties]:
        return Recent(16)


class Local(Topology, Generic[Plan]):
    """A family that computes a node's row from a plan; the plan is made once per view."""

    @abstractmethod
    def plan(self, members: Sequence[Member]) -> Plan:
        """What all rounds of this view share."""

    @abstractmethod
    def local(self, plan: Plan, round: int, index: int) -> Row:
        """Node `index`'s row, ins and outs, as if everybody could be dialled."""

    @abstractmethod
    def properties(self, n: int) -> Properties:
        """What it promises for n members."""

    def mixing(self, members: Sequence[Member], round: int) -> Mixing:
        """All rows together."""
        plan = self._plan(members)
        return Mixing.of([self.local(plan, round, i) for i in range(len(members))])

    def row(self, members: Sequence[Member], round: int, index: int) -> Row:
        """Node `index`'s part of the round, without making the others'."""
        row = self.local(self._plan(members), round, index)
        dialers = self._dialers(members)
        if len(dialers) < 2:
            return row
        declared = self.properties(len(members))
        return without_pairs(row, index in dialers, dialers, declared.doubly_stochastic, declared.mean_preserving)

    def _make_whole(self, members: Sequence[Member], round: int) -> Mixing:
        return Mixing.of([self.row(members, round, i) for i in range(len(members))])

    def _plan(self, members: Sequence[Member]) -> Plan:
        return self._plans.get(members, lambda: self._make_plan(members))

    def _make_plan(self, members: Sequence[Member]) -> Plan:
        self._admit(len(members))
        return self.plan(members)

    @cached_property
    def _plans(self) -> Recent[Sequence[Member], Plan]:
        return Recent(4)


def without_pairs(row: Row, dials: bool, dialers: frozenset[int], double: bool, pushes: bool) -> Row:
    """The row in a view where some can only dial out: two of those never meet, their weight goes back to themselves.

    A doubly stochastic W becomes (W + W^T) / 2 first, else giving weight back would move the mean: symmetric already, it stays
    as it is. Where only columns sum to 1 (push) the sender takes back, where only rows do the receiver.
    """
    row = halfway(row) if double else row
    if not dials:
        return row
    back = row.outs if pushes else row.ins
    lost = sum(weight for j, weight in back if j in dialers)
    outs, ins = (tuple((j, w) for j, w in side if j not in dialers) for side in (row.outs, row.ins))
    return Row(row.self_weight + lost, outs, ins)


def halfway(row: Row) -> Row:
    """The same node's row of (W + W^T) / 2."""
    if row.outs == row.ins:
        return row
    sums = dict(row.ins)
    for j, weight in row.outs:
        sums[j] = sums.get(j, 0.0) + weight
    both = tuple((j, sums[j] / 2) for j in sorted(sums))
    return Row(row.self_weight, both, both)
