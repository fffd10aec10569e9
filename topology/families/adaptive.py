"""Adaptive: the topology that reaches consensus soonest on the links as measured, in seconds, not in rounds.

Candidates are the families that do well on even networks, in the order of the ids and in one that keeps fast links together;
two levels by site; and graphs grown from the links themselves, fastest first, at several degrees. Each is timed on the links
(rounds to 1e-3 times what the slowest card, link or uplink makes of a round) and the soonest is taken. All of it is a function
of the members and the published links, so nodes that hold the same version agree; every candidate connects everybody.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from topology.base import Local, Member, Properties, Row, Topology
from topology.convergence import seconds_to
from topology.custom import Graph
from topology.errors import TopologyError
from topology.families.two_level import TwoLevel
from topology.links import Links, with_sites
from topology.mixing import Mixing
from topology.registry import make, register
from topology.weights import best_constant, metropolis

FAMILIES = ("base:k=1", "base:k=2", "base:k=3", "ring", "torus", "regular:degree=4", "complete")
SITE_FAMILIES = tuple(
    f"two-level:inside={inside},between={between},every={every}"
    for every in (3, 8)
    for inside in ("complete", "base")
    for between in ("complete", "ring", "star")
)
DEGREES = (2, 3, 4, 6)
SEARCH_MAX = 64
"""Members up to which candidates are timed, in 3 s at most; above, it is two levels where there are sites, else base."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A topology and the order in which it sees the members: `order[k]` is the position of its k-th, `place` the inverse."""

    topology: Topology
    view: tuple[Member, ...]
    order: tuple[int, ...]
    place: tuple[int, ...]
    seconds: float = math.inf
    """To an error of 1e-3."""

    def row(self, round: int, index: int) -> Row:
        """In positions of the whole view."""
        row = self.topology.row(self.view, round, self.place[index])
        return Row(row.self_weight, self._outside(row.outs), self._outside(row.ins))

    def _outside(self, side: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
        return tuple(sorted((self.order[j], w) for j, w in side))


@register("adaptive")
@dataclass(frozen=True)
class Adaptive(Local[Choice]):
    """What reaches consensus soonest on the links, in seconds. `payload` is the bytes to a partner in a round. Without `links`,
    sites are taken to have 10 Gbit inside and 100 Mbit between them."""

    measured: ClassVar[bool] = True
    payload: float = 100e6
    links: Links | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.payload > 0:
            raise TopologyError(f"adaptive: payload, bytes to a partner in a round, must be above 0, not {self.payload}")

    def given(self, links: Links) -> Adaptive:
        """The same with these links."""
        return replace(self, links=links)

    def plan(self, members: Sequence[Member]) -> Choice:
        """The soonest of the candidates."""
        if len(members) > SEARCH_MAX:
            seen = with_sites(members, self.links) if self.links is not None else members
            many = len({m.site for m in seen}) > 1
            chosen = make("two-level:inside=base,between=complete,every=8" if many else "base")
            return _choice(chosen, seen, range(len(seen)))
        links = (self.links or Links.by_site(members)).among(members)
        seen = with_sites(members, links)
        timed = (self._timed(choice, links) for choice in candidates(seen, links))
        return min(timed, key=lambda choice: round(choice.seconds, 6))

    def local(self, plan: Choice, round: int, index: int) -> Row:
        """The chosen topology's."""
        return plan.row(round, index)

    def properties(self, n: int) -> Properties:
        """What all candidates have in common."""
        return Properties(symmetric=True, doubly_stochastic=True, mean_preserving=True, directed=False)

    def _timed(self, choice: Choice, links: Links) -> Choice:
        return replace(choice, seconds=seconds_to(still(choice.topology), choice.view, links.among(choice.view), self.payload))


def still(topology: Topology) -> Topology:
    """With the same gateways in all cycles: as fast, and it has a period, so that it is timed in no time."""
    return replace(topology, rotate=False) if isinstance(topology, TwoLevel) else topology


def candidates(members: Sequence[Member], links: Links) -> Iterator[Choice]:
    """Everything that is timed; `links` in the members' order, and all members with a site or none."""
    n = len(members)
    by_id, by_speed = range(n), tuple(walk(links))
    for order in (by_id, by_speed):
        for spec in FAMILIES:
            if not make(spec).refuses(n):
                yield _choice(make(spec), members, order)
    if len({m.site for m in members}) > 1:
        for spec in SITE_FAMILIES:
            yield _choice(make(spec), members, by_id)
    for degree in DEGREES:
        edges = grown(links, degree)
        yield _choice(Graph(Mixing.undirected(n, edges, metropolis)), members, by_id)
        best = Mixing.undirected(n, edges, best_constant)
        if all(row.get(i, 0.0) >= 0 for i, row in enumerate(best.rows)):
            yield _choice(Graph(best), members, by_id)


def _choice(topology: Topology, members: Sequence[Member], order: Sequence[int]) -> Choice:
    place = [0] * len(members)
    for k, i in enumerate(order):
        place[i] = k
    return Choice(topology, tuple(members[i] for i in order), tuple(order), tuple(place))


def slowness(links: Links, i: int, j: int) -> tuple[float, float]:
    """What orders pairs: the slower direction's bandwidth, then the round trip."""
    bandwidth = min(links.bandwidth[i][j], links.bandwidth[j][i])
    return 1 / bandwidth, max(links.round_trip[i][j], links.round_trip[j][i])


def walk(links: Links) -> Iterator[int]:
    """All positions, from the first always on to the nearest that is left."""
    left, at = set(range(1, len(links.ids))), 0
    yield at
    while left:
        here = at
        at = min(left, key=lambda j: (slowness(links, here, j), j))
        left.remove(at)
        yield at


def grown(links: Links, degree: int) -> list[tuple[int, int]]:
    """A spanning tree of the fastest links, then the fastest of the others between nodes that have fewer than `degree`.

    Pairs that are equally fast are taken by distance in steps of powers of two and then others, so that an even network becomes
    no clique with tails.
    """
    n = len(links.ids)
    pairs = sorted(((i, j) for i in range(n) for j in range(i)), key=lambda p: (slowness(links, *p), _spread(n, *p), p))
    tree = spanning(n, pairs)
    count = [sum(i in edge for edge in tree) for i in range(n)]
    edges = set(tree)
    for i, j in pairs:
        if (i, j) not in edges and max(count[i], count[j]) < degree:
            edges.add((i, j))
            count[i], count[j] = count[i] + 1, count[j] + 1
    return sorted(edges)


def spanning(n: int, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The first pairs that join something new (Kruskal)."""
    part, tree = list(range(n)), list[tuple[int, int]]()
    for i, j in pairs:
        if part[i] != part[j]:
            tree.append((i, j))
            part = [part[i] if p == part[j] else p for p in part]
    return tree


def _spread(n: int, i: int, j: int) -> int:
    distance = min(i - j, n - i + j)
    return distance if distance & (distance - 1) == 0 else distance + n
