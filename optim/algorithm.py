"""The contract of an algorithm: what it shares, by which exchange, how often, and what it needs of the topology.

An algorithm decides; it never touches memory or sockets. The agent carries a *swap* (both ways, between gossip copies, no
trainer waits) or a *push* (one way, in rounds that all nodes count together) out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from optim.kinds import Kind

MODEL = frozenset({Kind.PARAMETER, Kind.BUFFER, Kind.NEWEST})
MOMENTS = frozenset({Kind.SIGNED, Kind.NONNEGATIVE, Kind.COUNTER})


@dataclass(frozen=True)
class Algorithm:
    """Base of all. Frozen: two nodes with equal algorithms have equal specs."""

    name: ClassVar[str] = ""
    exchange: ClassVar[Literal["swap", "push"]]
    needs: ClassVar[frozenset[str]] = frozenset()
    """Names of `topology.Properties` that must hold, for it to converge to the mean."""
    payloads: ClassVar[int] = 1
    """Times the shared state that one exchange carries each way."""

    momentum: Literal["shared", "local"] = "shared"
    """Whether the optimizer's moments are mixed like the parameters; first and second moments together or not at all."""

    @property
    def shares_state(self) -> bool:
        """Whether the optimizer's state travels."""
        return self.momentum == "shared"
