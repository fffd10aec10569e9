"""Two levels: often inside a site, seldom between sites."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar

from topology.base import Local, Member, Properties, Recent, Row, Topology
from topology.errors import bounded
from topology.fallback import fitting
from topology.links import Links, with_sites
from topology.mixing import rest
from topology.registry import nested, register

Pairs = dict[int, dict[int, float]]
"""{node: {partner: weight}}, mutual."""


@dataclass(frozen=True, slots=True)
class Sites:
    """A view by site: positions, each site's own view and topology, and each position's (site, place)."""

    positions: tuple[tuple[int, ...], ...]
    views: tuple[tuple[Member, ...], ...]
    inside: tuple[Topology, ...]
    leaders: tuple[Member, ...]
    """One member for each site, named like it."""
    between: Topology
    place: dict[int, tuple[int, int]]
    pairs: Recent[int, Pairs] = field(default_factory=lambda: Recent(4), compare=False)

    def turned(self, position: int, cycle: int, ways: int = 1) -> int:
        """Who has this one's part in a cycle; `ways=-1`: whose part this one has.

        One place on with each cycle; after each lap of the largest site the sites turn against each other, so that the same
        two do not always meet.
        """
        site, place = self.place[position]
        group, lap = self.positions[site], max(map(len, self.positions))
        return group[(place + ways * (cycle + site * (cycle // lap))) % len(group)]


@register("two-level")
@dataclass(frozen=True)
class TwoLevel(Local[Sites]):
    """Often inside a site, seldom between sites. `every` rounds make a cycle: one between the sites, in its middle, the others
    inside them.

    Between two sites as much weight flows as the Metropolis rule on the graph of sites gives, sites counted by their size:
    L_s L_t / max(sizes of s and its neighbours, sizes of t and its neighbours). With `between=complete` and complete averaging
    before and after, the cycle is the exact average. As few pairs of nodes as can hold the weight carry it: the gateways. In
    the next cycle it is the next ones' turn, so that all pay alike for what crosses, and no death stops it for longer than a
    cycle; `rotate=False` leaves it to the first ones. Where nobody states a site, round trips tell, if there are `links`.
    """

    measured: ClassVar[bool] = True
    inside: str = "complete"
    between: str = "ring"
    every: int = 8
    rotate: bool = True
    links: Links | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        bounded("two-level: every, the rounds of a cycle of which one joins the sites,", self.every, 2)
        for spec in (self.inside, self.between):
            nested(spec)

    def given(self, links: Links) -> TwoLevel:
        """The same with these links."""
        return replace(self, links=links)

    def plan(self, members: Sequence[Member]) -> Sites:
        """Members grouped by site."""
        members = with_sites(members, self.links) if self.links is not None else members
        groups: dict[str, list[int]] = {}
        for i, member in enumerate(members):
            groups.setdefault(member.site, []).append(i)
        positions = tuple(tuple(groups[site]) for site in sorted(groups))
        views = tuple(tuple(members[i] for i in group) for group in positions)
        leaders = tuple(Member(site) for site in sorted(groups))
        inside = nested(self.inside)
        plan = Sites(
            positions,
            views,
            tuple(fitting(inside, view)[0] for view in views),
            leaders,
            fitting(nested(self.between), leaders)[0],
            {i: (s, k) for s, group in enumerate(positions) for k, i in enumerate(group)},
        )
        self._pairs(plan, 0)
        return plan

    def local(self, plan: Sites, round: int, index: int) -> Row:
        """Between the sites in the middle of each cycle; inside in the others, which count on without it."""
        (cycle, step), middle = divmod(round, self.every), self.every // 2
        alone = len(plan.positions) == 1
        if step == middle and not alone:
            return self._crossing(plan, cycle, index)
        site, place = plan.place[index]
        row = plan.inside[site].row(plan.views[site], round if alone else round - cycle - (step > middle), place)
        at = plan.positions[site]
        return Row(row.self_weight, tuple((at[j], w) for j, w in row.outs), tuple((at[j], w) for j, w in row.ins))

    def properties(self, n: int) -> Properties:
        """What both levels promise; the period only where both are static, as sites may have any size."""
        inside, between = nested(self.inside).properties(n), nested(self.between).properties(n)
        exact = self.inside == self.between == "complete" and self.every > 2
        return Properties(
            symmetric=inside.symmetric,
            doubly_stochastic=inside.doubly_stochastic,
            mean_preserving=inside.mean_preserving,
            directed=inside.directed,
            period=self.every if inside.static and between.static and not self.rotate else None,
            finite_time=exact,
        )

    def _crossing(self, plan: Sites, cycle: int, index: int) -> Row:
        turn = cycle if self.rotate else 0
        met = self._pairs(plan, cycle).get(plan.turned(index, turn, -1), {})
        both = tuple(sorted((plan.turned(j, turn), w) for j, w in met.items()))
        return Row(rest(w for _, w in both), both, both)

    def _pairs(self, plan: Sites, cycle: int) -> Pairs:
        static = plan.between.properties(len(plan.leaders)).static
        return plan.pairs.get(0 if static else cycle, lambda: crossings(plan, cycle))


def crossings(plan: Sites, cycle: int) -> Pairs:
    """The pairs of nodes that carry the weight between the sites."""
    rows = plan.between.whole(plan.leaders, cycle).rows
    near = [{t for t in range(len(rows)) if t != s and (t in rows[s] or s in rows[t])} for s in range(len(rows))]
    sizes = [len(group) for group in plan.positions]
    reach = [sizes[s] + sum(sizes[t] for t in near[s]) for s in range(len(near))]
    flows = {(s, t): Fraction(sizes[s] * sizes[t], max(reach[s], reach[t])) for s in range(len(near)) for t in near[s] if s < t}
    return carried(plan.positions, flows)


def carried(positions: Sequence[Sequence[int]], flows: dict[tuple[int, int], Fraction]) -> Pairs:
    """Each site's nodes are filled in order, each up to weight 1; a new flow starts at a fresh node while enough are left."""
    pairs: Pairs = {}
    used = [Fraction(0)] * len(positions)
    left = [sum((f for ends, f in flows.items() if s in ends), Fraction(0)) for s in range(len(positions))]
    for ends, flow in sorted(flows.items()):
        for s in ends:
            used[s] = Fraction(math.ceil(used[s])) if math.ceil(used[s]) + left[s] <= len(positions[s]) else used[s]
            left[s] -= flow
        while flow:
            weight = min(flow, *(math.floor(used[s]) + 1 - used[s] for s in ends))
            a, b = (positions[s][math.floor(used[s])] for s in ends)
            for i, j in ((a, b), (b, a)):
                pairs.setdefault(i, {})[j] = float(weight)
            for s in ends:
                used[s] += weight
            flow -= weight
    return pairs
