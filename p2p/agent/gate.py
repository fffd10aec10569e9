"""The gate: how far a partner's block may be from the own one before it counts less; and who is beyond it again and again.

A difference counts in full up to 3 times the median of the partners' last ones in this block, or up to a share of the own
block's norm, whichever is larger; beyond, no more than that, and gross values the less the further (`Limit`). One partner in
many can't move the median, however often it asks. No verdict: a healed partition's other half counts little at first, and
more as the models approach.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from statistics import median

from optim import Kind
from p2p.state.outcome import UNLIMITED, Difference, Limit

KNOWN = 3
"""Partners whose differences make a median; with fewer, the own norm alone is the measure."""
MOMENTS = (Kind.SIGNED, Kind.NONNEGATIVE, Kind.MOMENTS)
STREAK = 16
"""Blocks in a row beyond the gate after which a partner is called far."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the own norm: what counts in full in any case, of values and of moments, which are noisy and differ by their norm.

    `first`: the same while too few partners are known; models that begin apart differ by about 1.4 norms.
    """

    values: float
    moments: float
    first: tuple[float, float]

    def of(self, kind: Kind, known: int) -> float:
        values, moments = (self.values, self.moments) if known >= KNOWN else self.first
        return moments if kind in MOMENTS else values


SWAPPED = Shares(0.1, 1.0, first=(3.0, 30.0))
"""Both ends clip alike, so that clipping moves no mean, and may be tight."""
PUSHED = Shares(10.0, 100.0, first=(10.0, 100.0))
"""Each receiver clips alone, which moves the mean: for gross values only, which no honest node sends."""


class Gate:
    """One node's, for blocks of these kinds. `factor` times the median is let through; 0: everything is."""

    def __init__(self, kinds: Sequence[Kind], factor: float, shares: Shares) -> None:
        self._kinds = kinds
        self._factor = factor
        self._shares = shares
        self._last: list[dict[str, float]] = [{} for _ in kinds]  # per block: each partner's last distance
        self._beyond: dict[str, int] = {}  # per partner: blocks in a row

    def limit(self, block: int, part: bool = False) -> Limit:
        """For the next difference in this block, or in a part of it: one part says little of the next, so that only gross
        values count less there."""
        kind, known = self._kinds[block], self._last[block]
        if not self._factor or kind in (Kind.COUNTER, Kind.NEWEST):
            return UNLIMITED
        gross = self._shares.of(kind, 0)
        if part:
            return Limit(0.0, gross, gross)
        middle = median(known.values()) if len(known) >= KNOWN else 0.0
        return Limit(self._factor * middle, self._shares.of(kind, len(known)), gross)

    def saw(self, partner: str, block: int, difference: Difference) -> None:
        """A partner's block was compared with the own one."""
        if difference.finite:
            self._last[block][partner] = difference.squared**0.5
        beyond = difference.clipped or not difference.finite
        self._beyond[partner] = self._beyond.get(partner, 0) + 1 if beyond else 0

    def keep(self, members: Container[str]) -> None:
        """Forget those who are gone."""
        self._beyond = {partner: row for partner, row in self._beyond.items() if partner in members}
        self._last = [{partner: d for partner, d in known.items() if partner in members} for known in self._last]

    @property
    def far(self) -> tuple[str, ...]:
        """Partners whose blocks have all been beyond the gate lately, or not finite."""
        return tuple(partner for partner, row in self._beyond.items() if row >= STREAK)
