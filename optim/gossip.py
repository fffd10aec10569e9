"""`gossip`: synchronous decentralized SGD.

Adapt then combine: x <- W (x - lr g). Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?" (2017).
Overlapped, adapt with combine: x <- W x - lr g(x), where x is in flight while g is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

from optim.momentum import WithMomentum
from optim.registry import register
from optim.synchronous import Synchronous
from topology import SpecError


@register("gossip")
@dataclass(frozen=True)
class Gossip(WithMomentum, Synchronous):
    """Moments mix by the same row, unless `momentum=local` (the textbook's).

    `overlap`: what was published after one step is combined after the next, so that it travels during the computation.
    """

    overlap: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap and self.rule is not None:
            raise SpecError(f"{self.name}: robust={self.robust} compares the models of one round; it can't be overlapped")


@register("local")
@dataclass(frozen=True)
class Local(Gossip):
    """Local SGD: W = I but every `period` steps. With a `switch` post-local SGD; on `complete` the averages are exact.

    Stich, "Local SGD Converges Fast and Communicates Little" (2019); momentum averaged along by Yu et al. (2019);
    Lin et al., "Don't Use Large Mini-Batches, Use Local SGD" (2020) for the switch.
    """

    period: int = 8


@register("oldsgd")
@dataclass(frozen=True)
class OverlappedLocal(Local):
    """Every tau steps x <- W x_before - lr (the sum of the gradients since), with x_before the model of tau steps ago.

    Wang et al., "Overlap Local-SGD" (2020), over gossip: a round travels during the whole next period.
    """

    overlap: bool = True
