"""What mixing did: how much gossip brought, how far partners were apart, what was not finite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meeting:
    """What a meet did."""

    touched: int  # blocks that gossip had changed since the last one
    squared: float  # squared norm of what gossip brought
    nonfinite: tuple[str, ...]  # tensors with a nan or infinity: their blocks did not meet


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a partner's block was from the own one. Where a value isn't finite, nothing was changed."""

    squared: float  # ||theirs - own||^2; 0 where not finite
    nonfinite: tuple[str, ...] = ()  # the tensors at fault

    @property
    def finite(self) -> bool:
        return not self.nonfinite
