"""What a swarm runs on while its topology can't take the view, because someone died or joined: a death never stops training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from topology.base import Member, Topology
from topology.errors import TopologyError
from topology.measure import cut_off
from topology.undirected import Undirected


@dataclass(frozen=True)
class Fallback(Undirected):
    """The lazy Metropolis ring. Members that can only dial out hang on two neighbours of the others' ring."""

    weights: str = "lazy"
    name = "fallback"

    def edges(self, members: Sequence[Member]) -> Iterable[tuple[int, int]]:
        """The ring, then the hanging ones."""
        dialers = [i for i, m in enumerate(members) if m.dial_only]
        hanging = set(dialers) if len(dialers) > 1 else set()
        ring = [i for i in range(len(members)) if i not in hanging]
        if not ring:
            return
        for k, i in enumerate(ring):
            yield i, ring[(k + 1) % len(ring)]
        for k, i in enumerate(sorted(hanging)):
            yield i, ring[k % len(ring)]
            yield i, ring[(k + 1) % len(ring)]


FALLBACK = Fallback()


def fitting(topology: Topology, members: Sequence[Member]) -> tuple[Topology, str | None]:
    """The topology and None if it takes these members, else FALLBACK and the reason.

    It doesn't if it refuses their number, if dial-only members would cut it in parts, or if it is wrong for them.
    """
    if reason := topology.refuses(len(members)):
        return FALLBACK, reason
    if sum(m.dial_only for m in members) > 1 and (cut := cut_off(topology, members)):
        return FALLBACK, f"members that can only dial out never meet each other, and cut off {', '.join(cut)}"
    try:
        topology.row(members, 0, 0)
    except TopologyError as wrong:
        return FALLBACK, str(wrong)
    return topology, None
