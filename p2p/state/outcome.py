"""What mixing did: how far partners were apart, what was not finite."""

from __future__ import annotations

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

    Beyond a bound b, a difference of norm d counts as one of norm b^2 / d: not only no more, but the less the further. What is
    only clipped to b still pulls steadily; this way, gross values have no weight, and models that are apart still merge.
    """

    norm: float = 0.0
    share: float = 0.0

    def bound(self, own: float) -> float:
        """With an own block of norm `own`; 0 where there is none."""
        return max(self.norm, self.share * own)

    def scale(self, squared: float, own: Tensor) -> float:
        """The factor for a difference of this squared norm."""
        if squared <= self.norm * self.norm or not (self.norm or self.share):
            return 1.0
        bound = self.bound(squared_norm(own) ** 0.5 if self.share else 0.0)
        return min(1.0, bound * bound / squared) if bound else 1.0


UNLIMITED = Limit()
