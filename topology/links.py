"""Links: what is known of bandwidths and round trips between members, and how long a round takes over them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from topology.base import Member
from topology.errors import TopologyError
from topology.mixing import Mixing

Table = tuple[tuple[float, ...], ...]

LAN, WAN = 10e9 / 8, 100e6 / 8
"""Bytes per second that are assumed inside a site and between sites as long as nothing is measured: 10 Gbit, 100 Mbit."""
LAN_ROUND_TRIP, WAN_ROUND_TRIP = 0.0005, 0.05
"""Seconds, likewise."""
RUNG = math.sqrt(2)
"""Published values are powers of this: what is measured jitters, what topologies are made from must not."""
LEAST = 1e-9
"""A nanosecond, or a byte in 30 years: what measures less is taken for this, so that it has a logarithm."""
SITE_RATIO = 3.0
"""Round trips between sites are at least so many times those inside, else it is all one site."""
NEAR = 0.005
"""Seconds. Shorter round trips tell racks and busy machines apart, not sites."""


@dataclass(frozen=True)
class Links:
    """Pairwise bandwidth in bytes per second and round trip in seconds, `table[i][j]` from ids[i] to ids[j].

    Nodes that hold the same version build the same topology. Raises TopologyError on wrong shapes or values.
    """

    ids: tuple[str, ...]
    bandwidth: Table
    round_trip: Table
    version: int = 0

    def __post_init__(self) -> None:
        n = len(self.ids)
        for name, table in (("bandwidth", self.bandwidth), ("round_trip", self.round_trip)):
            if len(table) != n or any(len(line) != n for line in table):
                raise TopologyError(f"{name} must be {n} x {n}, a line and a column for each of the {n} ids")
            for i, j, value in ((i, j, table[i][j]) for i in range(n) for j in range(n) if i != j):
                if not math.isfinite(value) or value < 0 or (value == 0 and name == "bandwidth"):
                    raise TopologyError(
                        f"{name} from {self.ids[i]} to {self.ids[j]} is {value}; it must be positive and finite"
                    )

    @classmethod
    def by_site(cls, members: Sequence[Member], lan: float = LAN, wan: float = WAN) -> Links:
        """What the sites suggest, while nothing is measured."""
        near = [[a.site == b.site for b in members] for a in members]
        return cls(
            tuple(m.id for m in members),
            tuple(tuple(lan if same else wan for same in line) for line in near),
            tuple(tuple(LAN_ROUND_TRIP if same else WAN_ROUND_TRIP for same in line) for line in near),
        )

    @classmethod
    def published(cls, ids: Sequence[str], bandwidth: Table, round_trip: Table, previous: Links | None = None) -> Links:
        """From measured tables: settled values, one version up. If none has moved far enough, `previous` itself."""
        old = previous if previous is not None and previous.ids == tuple(ids) else None
        new = cls(
            tuple(ids),
            _settled(bandwidth, old.bandwidth if old else None),
            _settled(round_trip, old.round_trip if old else None),
            previous.version if previous else 0,
        )
        return previous if previous is not None and new == previous else replace(new, version=new.version + 1)

    def among(self, members: Sequence[Member]) -> Links:
        """For these members in their order; a pair that nobody has measured counts as the slowest that somebody has."""
        at = {name: i for i, name in enumerate(self.ids)}
        places = [at.get(m.id) for m in members]
        off_diagonal = [(i, j) for i in range(len(self.ids)) for j in range(len(self.ids)) if i != j]
        slow = min((self.bandwidth[i][j] for i, j in off_diagonal), default=WAN)
        late = max((self.round_trip[i][j] for i, j in off_diagonal), default=WAN_ROUND_TRIP)

        def pick(table: Table, unknown: float) -> Table:
            return tuple(tuple(unknown if i is None or j is None else table[i][j] for j in places) for i in places)

        return replace(
            self, ids=tuple(m.id for m in members), bandwidth=pick(self.bandwidth, slow), round_trip=pick(self.round_trip, late)
        )


def settled(measured: float, published: float | None = None) -> float:
    """What to publish for a measured value: a power of RUNG. The published value stays until the measured one is three quarters
    of a rung away, so a value on the edge between two rungs doesn't flap."""
    measured = max(measured, LEAST)
    if published is not None and abs(math.log(measured / published, RUNG)) < 0.75:
        return published
    return float(RUNG ** round(math.log(measured, RUNG)))


def _settled(table: Table, published: Table | None) -> Table:
    def cell(i: int, j: int) -> float:
        return 0.0 if i == j else settled(table[i][j], published[i][j] if published else None)

    return tuple(tuple(cell(i, j) for j in range(len(table))) for i in range(len(table)))


def infer_sites(round_trip: Sequence[Sequence[float]]) -> list[int]:
    """The site of each member, numbered in order of appearance, from round trips alone: see `clustered`."""
    n = len(round_trip)
    return clustered(n, [(min(round_trip[i][j], round_trip[j][i]), i, j) for i in range(n) for j in range(i)])


def clustered(n: int, pairs: Iterable[tuple[float, int, int]]) -> list[int]:
    """The same from the pairs (round trip, i, j) that are known.

    Single linkage: merge by ascending round trip, and stop before the largest jump, if that is a jump of SITE_RATIO at least.
    What is nearer than NEAR is as good as here. Whom nothing known joins to the rest counts as at the greatest known distance.
    """
    nearest = sorted((max(time, NEAR), i, j) for time, i, j in pairs)
    late = nearest[-1][0] if nearest else NEAR
    label = list(range(n))
    merges: list[tuple[float, int, int]] = []
    for time, i, j in [*nearest, *((late, i, i - 1) for i in range(1, n))]:
        if label[i] != label[j]:
            merges.append((time, i, j))
            label = [label[i] if k == label[j] else k for k in label]
    jumps = [b[0] / a[0] for a, b in pairwise(merges)]
    cut = jumps.index(max(jumps)) + 1 if jumps and max(jumps) >= SITE_RATIO else len(merges)
    return _numbered(n, [(i, j) for _, i, j in merges[:cut]])


def _numbered(n: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    label = list(range(n))
    for i, j in edges:
        label = [label[i] if k == label[j] else k for k in label]
    order = {k: place for place, k in enumerate(dict.fromkeys(label))}
    return [order[k] for k in label]


def with_sites(members: Sequence[Member], links: Links) -> tuple[Member, ...]:
    """The members as they are if one of them states a site, else with sites inferred from the round trips."""
    if any(m.site for m in members):
        return tuple(members)
    labels = infer_sites(links.among(members).round_trip)
    return tuple(replace(m, site=f"site{k}") for m, k in zip(members, labels, strict=True))


@dataclass(frozen=True, slots=True)
class Load:
    """What one round does to the links."""

    seconds: float
    busiest: str
    """Which link sets the time."""
    sent: float
    """Bytes that the busiest node sends."""


def load(mixing: Mixing, members: Sequence[Member], links: Links, payload: float) -> Load:
    """The time of one round in which every arc carries `payload` bytes; `links` are those `among` the members.

    Every pair has its bandwidth, every node's card is as fast as its fastest link, and all that leaves or enters a site shares
    one uplink, as fast as the fastest link to another site. Half a round trip is added.
    """
    flows = [(j, i) for i, row in enumerate(mixing.rows) for j, w in row.items() if i != j and w]
    if not flows:
        return Load(0.0, "none", 0.0)
    rate = np.array(links.bandwidth)
    np.fill_diagonal(rate, 0)
    sender, receiver = np.array(flows).T
    uses = [
        *_pairs(members, rate, sender, receiver),
        *_cards("from", members, rate.max(1), sender),
        *_cards("to", members, rate.max(0), receiver),
        *_uplinks("from", members, rate, sender, receiver),
        *_uplinks("to", members, rate.T, receiver, sender),
    ]
    seconds, busiest = max(uses, key=lambda use: use[0])
    delay = float(np.array(links.round_trip)[sender, receiver].max()) / 2
    sent = float(np.bincount(sender, minlength=mixing.n).max()) * payload
    return Load(seconds * payload + delay, busiest, sent)


Uses = list[tuple[float, str]]
Indices = np.ndarray


def _pairs(members: Sequence[Member], rate: np.ndarray, sender: Indices, receiver: Indices) -> Uses:
    slowest = int(np.argmin(rate[sender, receiver]))
    j, i = int(sender[slowest]), int(receiver[slowest])
    return [(1 / float(rate[j, i]), f"{members[j].id} to {members[i].id}")]


def _cards(way: str, members: Sequence[Member], card: np.ndarray, ends: Indices) -> Uses:
    counts = np.bincount(ends, minlength=len(members))
    return [(float(counts[i]) / float(card[i]), f"{way} {members[i].id}") for i in np.flatnonzero(counts).tolist()]


def _uplinks(way: str, members: Sequence[Member], rate: np.ndarray, ends: Indices, others: Indices) -> Uses:
    names = np.array([m.site for m in members])
    out: Uses = []
    for site in np.unique(names):
        inside = names == site
        crossing = int(np.count_nonzero(inside[ends] & ~inside[others]))
        if crossing:
            out.append((crossing / float(rate[np.ix_(inside, ~inside)].max()), f"{way} {site or 'the site without a name'}"))
    return out
