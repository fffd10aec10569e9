"""A node's seat in a view: its row of the topology, by ids instead of positions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import cached_property

from p2p.agent.round_robin import Row
from p2p.agent.rounds import Plan
from p2p.agent.view import View
from topology import Topology, fitting

CACHED = 64  # rounds


class Seat:
    """One node in one view. Where the topology can't take the view, the lazy Metropolis ring does; `reason` says why."""

    def __init__(self, view: View, topology: Topology, node: str, joining: Iterable[str] = ()) -> None:
        """`joining`: who is not in the view yet, but answered already."""
        self.view = view
        self.joining = frozenset(joining)
        self.index = view.index(node)
        self.ids = {member.id: place for place, member in enumerate(view.members)}
        self.topology, self.reason = fitting(topology, view.members)
        self._asked: dict[int, Row] = {}
        self._drawn: dict[int, Row] = {}

    @cached_property
    def cycle(self) -> int:
        """Rounds after which the topology starts again; 1 for one that never does."""
        return self.topology.properties(len(self.ids)).period or 1

    @cached_property
    def tree(self) -> bool:
        """Whether the topology is one, and stays."""
        return self.topology.properties(len(self.ids)).tree

    def asks(self, round: int) -> Row:
        """Whom to ask for swaps, and how often: the out-neighbours, the self weight dropped, summing to 1."""
        return _kept(self._asked, round, self._row)

    def draw(self, round: int) -> Row:
        """One of `asks`, drawn by weight; the same one whenever this node asks about this round."""
        return _kept(self._drawn, round, self._draw)

    def _row(self, round: int) -> Row:
        outs = self.topology.row(self.view.members, round, self.index).outs
        total = sum(weight for _, weight in outs)
        return tuple((self.view.members[j].id, weight / total) for j, weight in outs)

    def _draw(self, round: int) -> Row:
        asks = self.asks(round)
        rng = random.Random(f"{self.view.members[self.index].id}/{round}")
        return tuple((partner, 1.0) for partner in rng.choices([p for p, _ in asks], [w for _, w in asks])) if asks else ()

    def plan(self, round: int) -> Plan:
        """The whole row, for pushes."""
        row = self.topology.row(self.view.members, round, self.index)
        members = self.view.members
        outs = tuple((members[j].id, weight) for j, weight in row.outs)
        ins = tuple((members[j].id, weight) for j, weight in row.ins)
        return Plan(round, row.self_weight, outs, ins)


def _kept(found: dict[int, Row], round: int, make: Callable[[int], Row]) -> Row:
    """What was made of this round before, or is made now."""
    if round not in found:
        if len(found) >= CACHED:
            found.clear()
        found[round] = make(round)
    return found[round]
