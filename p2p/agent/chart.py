"""The chart: what all members say of their links, spread with membership, and the links that topologies are made from.

A part of the membership machine. It causes no message: figures ride on probes and gossip, a few on each, and on push-pull. All
who have heard the same figures make the same links of the same view; they take new ones in together, once no more come, when
the others have them too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from statistics import median

from p2p.agent.dissemination import Dissemination, Item
from p2p.agent.figures import MOST, lasting, pack, publish, signed_part, sound, unpack
from p2p.agent.records import LIVE
from p2p.agent.roster import Roster
from p2p.agent.timers import Timers
from p2p.agent.view import View
from p2p.config import MembershipConfig
from p2p.net import keys
from p2p.net.messages import Figures
from topology import Figure, Links, Span, Survey, spans, surveyed

RIDERS = 8
"""Figures that one message takes along."""
PERIOD = 10.0
"""Seconds between two looks at the own links, in a swarm of up to CROWD; as many times longer as there are more."""
CROWD = 32
LOOKS = 5
"""Looks over which a bandwidth is smoothed."""
SETTLE = 5.0
"""Seconds without news after which it is taken in: others have heard the same by then."""
PATIENCE = 60.0
"""Seconds after which it is taken in at the latest."""
MEMBERS_MAX = 256
"""Members up to which links are made of all this: it takes time and memory by the square."""
MEASURE, ADOPT = "measure", "adopt"  # timers

Rates = Callable[[], Mapping[str, tuple[float, float]]]
"""Of partners: bytes a second there, and seconds of queueing."""

verified = lru_cache(maxsize=4096)(keys.verify)
"""All machines of a process share the answers."""


class Chart:
    """One node's."""

    def __init__(self, roster: Roster, config: MembershipConfig, timers: Timers) -> None:
        self._roster, self._timers = roster, timers
        self._queue = Dissemination(replace(config, piggyback=RIDERS))
        self._said: dict[str, Figures] = {}
        self._own: dict[str, Figure] = {}
        self._recent: dict[str, deque[float]] = {}  # bandwidths as measured, by partner
        self._version = roster.me.record.incarnation
        self._adopted: dict[str, Figures] = {}
        self._waits_since: float | None = None  # for quiet, before what came is taken in
        self._links: tuple[View, Links | None] | None = None

    # --- the own links -----------------------------------------------------------------------------------------------

    def open(self, rates: Rates, sign: Callable[[bytes], bytes], now: float) -> None:
        """From now on this node speaks of its links."""
        self._rates, self._sign = rates, sign
        self._timers.set(MEASURE, now + PERIOD, self._on_measure)

    def _on_measure(self, now: float) -> None:
        """Say what has changed by more than rounding, if anything has."""
        self._said = {node: figures for node, figures in self._said.items() if node in self._roster.members}
        told = publish(self._measured(), self._own)
        if self._is_news(told):
            self._own = told
            self._say(pack(told), now)
        crowd = max(1.0, self._roster.live / CROWD)
        self._timers.set(MEASURE, now + PERIOD * crowd, self._on_measure)

    def _is_news(self, told: Mapping[str, Figure]) -> bool:
        """Whether a figure changed, or many came: a large swarm's round trips come one by one, and not each one is a word."""
        fresh = told.keys() - self._own.keys()
        if any(told[node] != self._own[node] for node in told.keys() - fresh):
            return True
        whole = len(told) == min(len(self._roster.view) - (self._roster.node in self._roster.view), MOST)
        return len(fresh) > len(self._own) / 2 or (bool(fresh) and whole)

    def _measured(self) -> dict[str, Figure]:
        """Of partners first, then of those who follow in the view, as a ring: all together link everybody."""
        rates, members = self._smoothed(), self._roster.members
        ids = sorted(node for node, info in members.items() if info.in_view and node != self._roster.node)
        after = sorted(ids, key=lambda node: (node not in rates, node < self._roster.node, node))
        found = ((node, min(members[node].round_trips, default=0.0), *rates.get(node, (0.0, 0.0))) for node in after)
        return {node: Figure(*values) for node, *values in [f for f in found if any(f[1:])][:MOST]}

    def _smoothed(self) -> dict[str, tuple[float, float]]:
        """The median bandwidth of the last LOOKS, and the queueing of now: a link's noise is no news."""
        rates = self._rates()
        self._recent = {node: deque(self._recent.get(node, ()), LOOKS) for node in rates}
        for node, (bandwidth, _) in rates.items():
            self._recent[node].append(bandwidth)
        return {node: (median(self._recent[node]), queueing) for node, (_, queueing) in rates.items()}

    def _say(self, links: bytes, now: float) -> None:
        self._version += 1
        unsigned = Figures(self._roster.node, self._version, links, b"")
        figures = replace(unsigned, signature=self._sign(signed_part(unsigned)))
        self._keep(figures, now)
        self._queue.push(figures.node, figures)

    # --- what the others say -----------------------------------------------------------------------------------------

    def take(self, figures: Figures, now: float, *, spread: bool) -> str:
        """Somebody's word came; why it is refused, empty where it is not, or is old, or of nobody who lives here."""
        info, known = self._roster.members.get(figures.node), self._said.get(figures.node)
        if info is None or info.state not in LIVE or (known is not None and figures.version <= known.version):
            return ""
        if not sound(figures):
            return "malformed"
        if not verified(info.record.key, signed_part(figures), figures.signature):
            return "signature"
        if figures.node == self._roster.node:  # of an earlier life: it counts until the next word, which is later
            self._version = max(self._version, figures.version)
        self._keep(figures, now)
        if spread:
            self._queue.push(figures.node, figures)
        return ""

    def riders(self) -> list[Item]:
        """What one message takes along."""
        return self._queue.take(self._roster.live) if len(self._queue) else []

    def everything(self) -> Iterator[Figures]:
        """The last word of all who live."""
        members = self._roster.members
        return (f for node, f in self._said.items() if node in members and members[node].state in LIVE)

    def _keep(self, figures: Figures, now: float) -> None:
        self._said[figures.node] = figures
        self._waits_since = now if self._waits_since is None else self._waits_since
        self._timers.set(ADOPT, min(now + SETTLE, self._waits_since + PATIENCE), self._on_adopt)

    # --- what it comes to --------------------------------------------------------------------------------------------

    def _on_adopt(self, now: float) -> None:
        """A topology is made anew only where something that counts for it has changed."""
        before = self._digest()
        self._adopted, self._waits_since = dict(self._said), None
        if self._digest() != before:
            self._links = None

    @property
    def links(self) -> Links | None:
        """Of the view's members, another object whenever it changes; None where nothing is measured, or they are too many."""
        view = self._roster.view
        if self._links is None or self._links[0] is not view:
            told = any(member.id in self._adopted for member in view.members) and len(view) <= MEMBERS_MAX
            self._links = view, surveyed(view.members, self._survey(), self._digest()) if told else None
        return self._links[1]

    @property
    def spans(self) -> list[Span]:
        """What was measured between the sites."""
        view = self._roster.view
        return spans(view.members, self._survey()) if len(view) <= MEMBERS_MAX else []

    def figure(self, source: str, target: str) -> Figure:
        """What `source` said last of its link to `target`."""
        said = self._said.get(source)
        return unpack(said.links, [target]).get(target, Figure()) if said is not None else Figure()

    def carries(self, source: str, target: str, site: str) -> float:
        """Bytes a second from `source` to `target`, a node of this site, or to its like: 0 where `source` has said nothing.

        Of a newcomer nothing is measured: then the best link to its site counts, or else the best one.
        """
        said = self._said.get(source)
        members = {member.id: member.site for member in self._roster.view.members}
        figures = unpack(said.links, {*members, target}) if said is not None else {}
        there = [figure.bandwidth for node, figure in figures.items() if members.get(node) == site and figure.bandwidth]
        return figures.get(target, Figure()).bandwidth or max(there or [f.bandwidth for f in figures.values()], default=0.0)

    def _survey(self) -> Survey:
        ids = [member.id for member in self._roster.view.members]
        return {node: unpack(self._adopted[node].links, ids) for node in ids if node in self._adopted}

    def _digest(self) -> int:
        """64 bits: of the round trips and bandwidths that the members of this view speak of."""
        adopted = ((member.id, self._adopted.get(member.id)) for member in self._roster.view.members)
        said = b"|".join(node.encode() + lasting(figures.links) for node, figures in adopted if figures is not None)
        return int.from_bytes(blake2b(said, digest_size=8).digest(), "big")
