"""What the membership machine wants done."""

from __future__ import annotations

from dataclasses import dataclass

from p2p.agent.records import LIVE, State
from p2p.net.messages import Message


@dataclass(frozen=True, slots=True)
class Send:
    """Send this message to that node, by whatever way is known."""

    node: str
    message: Message


@dataclass(frozen=True, slots=True)
class Changed:
    """A node stands differently now; `before` is None for one that was unknown."""

    node: str
    before: State | None
    after: State
    reason: str

    @property
    def event(self) -> str:
        """joined, suspected, left, dead, back, or ready (its state has arrived)."""
        if self.after is State.SUSPECT:
            return "suspected"
        if self.after not in LIVE:
            return str(self.after)
        if self.before is None:
            return "joined"
        return "ready" if self.before is State.JOINING else "back"


@dataclass(frozen=True, slots=True)
class Returned:
    """This node was away: the others held it dead, or it stood still for as long as that takes."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """News that came from `node` was not taken; said once per node and reason, counted in `Membership.refused`."""

    node: str
    reason: str  # malformed, contract, incarnation, signature, full, conflict


Instruction = Send | Changed | Returned | Refused
