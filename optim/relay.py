"""`relay-sum`: on a tree, everybody's model reaches everybody, once and in full, after as many rounds as they are apart.

Vogels et al., "RelaySum for Decentralized Deep Learning on Heterogeneous Data" (2021): i sends to j the sum of its own model
and of what its other neighbours sent it in the round before, m_ij = x_i + sum of m_ki, and how many models these are,
c_ij = 1 + sum of c_ki; then x_i <- (x_i (n - sum of c_ji) + sum of m_ji) / n. Gossip weighs the far less and less; a relay
does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from optim.registry import register
from optim.synchronous import Synchronous
from topology import SpecError


@register("relay-sum")
@dataclass(frozen=True)
class RelaySum(Synchronous):
    """What travels is the mean m / c, with c / n as its weight; the topology's weights don't count.

    While the topology can't take the view, its stand-in is no tree, and rounds are those of `gossip`. Moments stay local, as
    published: what comes from afar is some rounds old, and old momentum overshoots.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"tree"})

    momentum: Literal["shared", "local"] = "local"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule is not None:
            raise SpecError(f"{self.name}: robust={self.robust} compares neighbours, whose relays are not their own models")
