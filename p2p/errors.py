"""The one tree of errors that a user may meet.

StarlingsError
├── ConfigError            a setting that can't be: what, where, and what would do
├── JoinError              no way into the swarm; says per address why not
│   ├── ListenError        the own address can't be bound
│   ├── SecretError        no secret, or the wrong one
│   └── ContractError      another protocol, model, optimizer, algorithm, topology or seed
├── WireError              a message or file from outside that breaks the format (a peer's fault)
├── StateError             a state that can't be shared or restored
└── ClosedError            the node has left the swarm
"""

from __future__ import annotations


class StarlingsError(Exception):
    """Anything that this library raises on purpose."""


class ConfigError(StarlingsError):
    """A setting that can't be."""


class JoinError(StarlingsError):
    """No way into the swarm."""


class ListenError(JoinError):
    """The own address can't be bound."""


class SecretError(JoinError):
    """No secret where one is needed, or the wrong one."""


class ContractError(JoinError):
    """The swarm agrees on something else."""


class WireError(StarlingsError):
    """A message that breaks the format; `reason` is a short label that is counted."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class StateError(StarlingsError):
    """A state that can't be shared or restored."""


class ClosedError(StarlingsError):
    """The node has left the swarm."""
