"""Every knob, with its unit, its formula and its trade-off; three profiles.

`LAN` is the default. `WAN` waits longer before it believes the worst. `TEST` is for loopback and for tests
that should not take long.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    """SWIM with Lifeguard; times in seconds."""

    probe_interval: float = 1.0
    """One probe each so often (x (1 + local health)). Half of it: half the detection time, twice the messages."""


@dataclass(frozen=True, slots=True)
class ExchangeConfig:
    """How shards travel."""

    block_bytes: int = 256 * KIB
    """The grid. Part of the contract. Smaller blocks rotate finer on thin links and cost more calls on fat ones."""
    message_bytes: int = 4 * MIB
    """The longest run of blocks in one message. 1 to 4 MiB move fastest over ZeroMQ; longer ones delay what queues behind."""
    credit_start: int = 2 * MIB
    """Bytes under way to a partner before anything is measured."""
    credit_max: int = 64 * MIB
    """Bytes under way to a partner at most: bounds memory. Should exceed bandwidth x round trip."""
    open_max: int = 4
    """Own swaps of one block open at once, where swaps take longer than a step; each at weight 1 / (k + 1)."""
    floor: float = 0.3
    """Seconds. No partner is paused sooner: a C call that holds the GIL delays its agent's echo by as much."""
    settle_after: float = 0.25
    """Seconds until receipts that found no message to ride on travel alone."""


@dataclass(frozen=True, slots=True)
class DeadlineConfig:
    """How long a synchronous round waits for a neighbour: adaptive, from the arrivals of all neighbours."""

    enabled: bool = True
    deviations: float = 4.0
    """The deadline lies so many deviations past the median arrival. More: fewer skips, longer waits for the slow."""
    floor: float = 0.3
    """Seconds. Never less, see ExchangeConfig.floor."""
    change: float = 2.0
    """Seconds that a round may still take once the view has changed, even with the deadline off: until views agree again,
    a neighbour may not know that it is waited for."""
    patience: int = 3
    """Skips in a row after which a neighbour is called slow and no longer waited for, until it is in time again."""


@dataclass(frozen=True, slots=True)
class JoinConfig:
    """Times in seconds."""

    timeout: float = 10.0
    """Until join gives up on the addresses it was given."""
    back_off: float = 0.2
    """First pause before an address is tried again; doubles up to `back_off_max`."""
    back_off_max: float = 2.0
    progress: float = 10.0
    """A state transfer fails after so long without a block, never by its whole length."""
    consensus: float = 300.0
    """Deadline of `node.consensus()`."""
    drain: float = 3.0
    """Leaving waits so long for open swaps."""


@dataclass(frozen=True, slots=True)
class NetConfig:
    """Connections; times in seconds."""

    heartbeat: float = 2.0
    """ZeroMQ's own probe of an idle connection."""
    heartbeat_timeout: float = 8.0
    """A connection whose far end is silent for so long is closed: a hint for membership, far above its own probes."""
    connect_timeout: float = 5.0
    """For TCP, and again for the handshake."""
    reconnect: float = 0.2
    """First pause before a lost connection is dialled again; doubles up to `reconnect_max`."""
    reconnect_max: float = 10.0
    """Longer: fewer attempts against the dead; shorter: a peer that comes back is met sooner."""
    close_timeout: float = 2.0
    """Shutdown is given up after so long."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything; see the parts."""

    membership: MembershipConfig = field(default_factory=MembershipConfig)
    exchange: ExchangeConfig = field(default_factory=ExchangeConfig)
    deadline: DeadlineConfig = field(default_factory=DeadlineConfig)
    join: JoinConfig = field(default_factory=JoinConfig)
    net: NetConfig = field(default_factory=NetConfig)


LAN = Config()
WAN = replace(LAN)
TEST = replace(
    LAN,
    net=NetConfig(heartbeat=0.5, heartbeat_timeout=2.0, connect_timeout=2.0, reconnect=0.05, reconnect_max=0.5),
)
