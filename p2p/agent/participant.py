"""A participant: who it is, and what it trains."""

from __future__ import annotations

from dataclasses import dataclass

from optim import Algorithm
from p2p.net.keys import Identity
from p2p.net.messages import Contract
from p2p.state.method import Method
from p2p.state.shards import Shards
from topology import Topology


@dataclass(frozen=True, slots=True)
class Who:
    """A node, for its record and its headers."""

    identity: Identity
    incarnation: int
    swarm: bytes
    site: str = ""
    dial_only: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """What this node trains, and how: what its contract is made of, and the shared state itself."""

    contract: Contract
    algorithm: Algorithm
    topology: Topology
    method: Method
    shards: Shards
