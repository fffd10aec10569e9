"""Starlings: decentralized training. `join` a swarm with a model and its optimizer; the loop stays ordinary.

Names are imported on first use, so that `import p2p` is light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from p2p.errors import (
    ClosedError,
    ConfigError,
    ContractError,
    JoinError,
    ListenError,
    SecretError,
    StarlingsError,
    StateError,
    WireError,
)

if TYPE_CHECKING:
    from p2p.agent.consensus import Consensus
    from p2p.config import LAN, TEST, WAN, Config
    from p2p.node import Node, join
    from p2p.report import StepReport

__version__ = "0.1.0"

_HOMES = {
    "join": "p2p.node",
    "Node": "p2p.node",
    "StepReport": "p2p.report",
    "Consensus": "p2p.agent.consensus",
    "Config": "p2p.config",
    "LAN": "p2p.config",
    "WAN": "p2p.config",
    "TEST": "p2p.config",
}

__all__ = [
    "LAN",
    "TEST",
    "WAN",
    "ClosedError",
    "Config",
    "ConfigError",
    "Consensus",
    "ContractError",
    "JoinError",
    "ListenError",
    "Node",
    "SecretError",
    "StarlingsError",
    "StateError",
    "StepReport",
    "WireError",
    "join",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
