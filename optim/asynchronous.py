"""`async`: live swaps between gossip copies, at the network's pace; no step waits.

Pairwise averaging after Boyd et al., "Randomized Gossip Algorithms" (2006), beside training as in Lian et al., "Asynchronous
Decentralized Parallel SGD" (2018). A swap of a block adds a change on one side and subtracts the same on the other, so the
swarm's mean moves by local updates only, whatever the timing. Needs a topology that connects everybody over time; its
weights say how often a partner is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from optim.algorithm import Algorithm
from optim.registry import register


@register("async")
@dataclass(frozen=True)
class Async(Algorithm):
    """`period`: neighbourhood step times between two own swaps of a block."""

    exchange: ClassVar[Literal["swap", "push"]] = "swap"

    period: int = 1
