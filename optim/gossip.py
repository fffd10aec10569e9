"""`gossip`: synchronous decentralized SGD, adapt then combine: x <- W (x - lr g).

Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?" (2017). Moments mix by the same row, unless
`momentum=local` (the textbook's). W must be doubly stochastic, so that the mean moves by local updates only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from optim.algorithm import Algorithm
from optim.registry import register


@register("gossip")
@dataclass(frozen=True)
class Gossip(Algorithm):
    """`deadline=off` waits for every neighbour, however late."""

    exchange: ClassVar[Literal["swap", "push"]] = "push"
    needs: ClassVar[frozenset[str]] = frozenset({"doubly_stochastic"})

    deadline: Literal["adaptive", "off"] = "adaptive"
