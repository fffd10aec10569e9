"""Donors: in which order members are asked for their state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from p2p.net.messages import DonorAnswer


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member that could give its state."""

    node: str
    elsewhere: bool  # at another site
    seconds: float  # until it answered
    carries: float  # bytes a second, as members have measured; 0: nobody has
    answer: DonorAnswer


def ranked(candidates: Sequence[Candidate], nbytes: int) -> list[Candidate]:
    """The least loaded first, of the own site before others, and then who would bring so many bytes soonest.

    Of whom no bandwidth is known, it is taken for the least that is.
    """
    least = min((c.carries for c in candidates if c.carries), default=1.0)
    return sorted(candidates, key=lambda c: (c.answer.guests, c.elsewhere, c.seconds + nbytes / (c.carries or least)))
