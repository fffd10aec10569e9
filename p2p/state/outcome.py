"""What mixing did: how far partners were apart, what was not finite."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from p2p.state.mixing import squared_norm


@dataclass(frozen=True, slots=True)
class Meeting:
    """What a meet did."""

    touched: int  # blocks that gossip had changed since the last one
    nonfinite: tuple[str, ...]  # tensors with a nan or infinity: their blocks did not meet


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a partner's block was from the own one. Where a value isn't finite, nothing was changed."""

    squared: float  # ||theirs - own||^2; 0 where not finite
    nonfinite: tuple[str, ...] = ()  # the tensors at fault
    clipped: bool = False  # it was beyond the limit, and counted less

    @property
    def finite(self) -> bool:
        return not self.nonfinite


@dataclass(frozen=True, slots=True)
class Limit:
    """Up to which norm a difference counts in full: `norm`, or `share` of the own block's, whichever is larger; 0: any.

    Beyond that bound it counts as if it were no further than the bound, so that honest models that are apart still merge.
    Beyond `gross` of the own norm it counts the less the further: what is only clipped would go on pulling.
    """

    norm: float = 0.0
    share: float = 0.0
    gross: float = 0.0

    def bound(self, own: float) -> float:
        """With an own block of norm `own`; 0 where there is none."""
        return max(self.norm, self.share * own)

    def scale(self, squared: float, own: Tensor) -> float:
        """The factor for a difference of this squared norm."""
        if squared <= self.norm * self.norm or not (self.norm or self.share):
            return 1.0
        size = squared_norm(own) ** 0.5 if self.share or self.gross else 0.0
        bound = self.bound(size)
        if squared <= bound * bound or not bound:
            return 1.0
        distance = math.sqrt(squared)
        return bound / distance * min(1.0, max(bound, self.gross * size) / distance)


UNLIMITED = Limit()
