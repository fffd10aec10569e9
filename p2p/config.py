"""Every knob, with its unit, its formula and its trade-off; three profiles.

`LAN` is the default. `WAN` waits longer before it believes the worst. `TEST` is for loopback and for tests
that should not take long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    """SWIM with Lifeguard; times in seconds, N the number of live nodes.

    `probe_interval` should be at least twice `probe_timeout`. Every interval runs on the monotonic clock.
    """

    probe_interval: float = 1.0
    """One probe each so often (x (1 + local health)). Half of it: half the time to a suspicion, twice the messages."""
    probe_timeout: float = 0.5
    """An answer is late after max(this, 4 x the 99th percentile of the round trip); then others are asked. Shorter: more
    indirect probes, no sooner a verdict."""
    indirect_probes: int = 3
    """So many others are asked to probe a silent node. More: fewer suspicions for a bad link's sake, more messages."""
    suspicion_multiplier: int = 6
    """A suspect that is confirmed by multiplier - 2 others has max(floor, multiplier x max(1, log10 N) x probe interval)
    to refute. Larger: fewer false deaths, later true ones."""
    suspicion_floor: float = 10.0
    """Should exceed the longest stall of a healthy node: what is dead for this long is dead for everybody."""
    suspicion_factor: float = 4.0
    """An accusation that nobody confirms gets so many times the above."""
    health_max: int = 8
    """A node that finds itself slow stretches its probe interval up to so many times."""
    gossip_interval: float = 0.2
    """While there is news, it is sent so often, to `gossip_fanout` nodes; otherwise it rides on probes alone."""
    gossip_fanout: int = 3
    """News reaches all in about log N / log (1 + fan-out) intervals."""
    retransmit_multiplier: int = 4
    """Each piece of news rides on multiplier x ceil(log10 (N + 1)) messages of each node. Fewer: some miss it until the
    next push-pull."""
    piggyback: int = 16
    """So many pieces of news ride on one message (up to about 300 bytes each)."""
    sync_interval: float = 30.0
    """Push-pull with a random node, x (ceil(log2 N - log2 32) + 1) above 32 nodes: bounds how long views may differ."""
    sync_peers: int = 3
    """A joiner pulls from so many at once: one alone may be as wrong as one can be."""
    gossip_to_dead: float = 30.0
    """The dead go on to hear news for so long, so that one declared in error refutes."""
    reconnect_interval: float = 30.0
    """Push-pull with a random dead node each so often: heals a partition, within about this long over its nodes' number."""
    tombstone: float = 86400.0
    """The dead are remembered so long; well over ten times the longest push-pull period, or ghosts return."""
    hint: float = 60.0
    """An accusation about an unknown node is remembered so long."""
    reach: float = 60.0
    """A dial-only node is probed by those that heard from it so recently: the connection is then still there."""
    members_max: int = 4096
    """Nodes known at once, dead ones included; the longest dead give way. Bounds memory."""


@dataclass(frozen=True, slots=True)
class ExchangeConfig:
    """How shards travel."""

    block_bytes: int = 256 * KIB
    """The grid. Part of the contract. Smaller blocks rotate finer on thin links and cost more calls on fat ones."""
    message_bytes: int = 4 * MIB
    """The longest run of blocks in one message. 1 to 4 MiB move fastest over ZeroMQ; longer ones delay what queues behind."""
    credit_start: int = 2 * MIB
    """Bytes under way to a partner before anything is measured."""
    credit_max: int = 16 * MIB
    """Bytes under way to a partner at most; half of it for swaps, which hold a request and an answer each way. Bounds memory:
    a link may take four times as much of it. Should exceed bandwidth x round trip: 10 Gbit/s times 12 ms."""
    open_max: int = 4
    """Own swaps of one block open at once, where swaps take longer than a step; each at weight 1 / (k + 1)."""
    floor: float = 0.3
    """Seconds. No partner is paused sooner: a C call that holds the GIL delays its agent's echo by as much."""
    codec: str = "raw"
    """How blocks travel: a codec's name, `auto`, others between sites, others from some step on: `auto,eu:us=int4/int8@1000`
    (p2p/agent/coding.py, docs/links.md). Fewer bytes cost more swaps."""
    replicas: int = 1024 * MIB
    """Bytes, a half for each direction, of what partners hold of this node's blocks and it of theirs: on links whose codec is
    for differences, what they carry once per partner and direction. What finds no room travels as int8."""
    settle_after: float = 0.25
    """Seconds until receipts that found no message to ride on travel alone."""


@dataclass(frozen=True, slots=True)
class LimitConfig:
    """What this node may use of the network, in bytes a second; infinite where nothing is set. What carries the model and its
    state is held back, probes and news are not. Over any second a limit holds to 2 % and one message, which is
    0.04 s of it, or one block if that is longer."""

    uplink: float = math.inf
    """Out of this node, shared evenly by its partners. A little under the line's rate keeps the line's own queue short."""
    downlink: float = math.inf
    """Into this node: others are answered, and asked, no faster than what comes in allows."""
    wan: tuple[tuple[str, str, float], ...] = ()
    """Between two sites each way, for all their nodes together: each node of a site has an equal share."""


@dataclass(frozen=True, slots=True)
class DeadlineConfig:
    """How long a synchronous round waits for a neighbour: adaptive, from the arrivals of all neighbours."""

    enabled: bool = True
    first: float = 30.0
    """Seconds that a round waits before any arrival is known. Should exceed the difference between two nodes' first steps
    (compilation), or these are skipped; bounds the wait for a neighbour that has stopped stepping."""
    deviations: float = 4.0
    """The deadline lies so many deviations past the median arrival. More: fewer skips, longer waits for the slow."""
    share: float = 1.0
    """And at least so many times the median past it. Where what travels fills the line, who goes on without the last of it
    sends the next round's into the way of this one's: that makes others late, and in the end nobody is in anybody's round."""
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
    answer: float = 5.0
    """A member has so long to answer a hello, or a request for its state."""
    progress: float = 10.0
    """A donor of state is given up after so long without a block, never by the whole length. Should exceed the time that 1 MiB
    takes over the thinnest link."""
    donors: int = 3
    """Members that a joiner takes its state from at once, each a part of it. 1: a bitwise copy of one member."""
    consensus: float = 300.0
    """Deadline of `node.consensus()`."""
    lag: int = 100
    """Steps. A node that was held dead and is further behind takes a member's state. Smaller: work lost for a short absence;
    larger: an old model pulls everybody's back."""
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
class WorkConfig:
    """How samples are shared out; times in seconds."""

    interval: float = 0.1
    """News of work is sent at most so often. Longer: fewer messages, more chunks done twice after a death."""
    fanout: int = 3
    """To so many members at once, in turn; all hear it within about log N / log (1 + fan-out) intervals."""
    refresh: float = 1.0
    """All that is known goes to one member so often: makes good what was lost on the way."""
    settle: float = 0.3
    """A chunk whose home is elsewhere is begun this long (x the above logarithm) after it was claimed. Should exceed three
    intervals; shorter: two nodes may work on the same chunk."""
    claims: int = 64
    """Chunks claimed ahead, at most; as many as are worked off while a claim settles."""
    term: float = 10.0
    """A node that takes no step for max(this, 3 x its own step time) loses its leases. Shorter: less waiting for a stalled
    trainer at the end of an epoch, more work done twice."""
    first_term: float = 60.0
    """The same before a node's first step, which may compile."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything; see the parts."""

    membership: MembershipConfig = field(default_factory=MembershipConfig)
    exchange: ExchangeConfig = field(default_factory=ExchangeConfig)
    deadline: DeadlineConfig = field(default_factory=DeadlineConfig)
    limits: LimitConfig = field(default_factory=LimitConfig)
    join: JoinConfig = field(default_factory=JoinConfig)
    seed: int = 0
    """The swarm's: order of samples and all other chance that nodes share. A joiner takes its swarm's."""
    net: NetConfig = field(default_factory=NetConfig)
    work: WorkConfig = field(default_factory=WorkConfig)


LAN = Config()
WAN = replace(
    LAN,
    membership=MembershipConfig(
        probe_interval=2.0,
        probe_timeout=1.0,
        suspicion_floor=20.0,
        gossip_interval=0.5,
        gossip_fanout=4,
        sync_interval=60.0,
        gossip_to_dead=60.0,
        reconnect_interval=60.0,
    ),
    exchange=ExchangeConfig(credit_max=64 * MIB),
)
TEST = replace(
    LAN,
    net=NetConfig(heartbeat=0.5, heartbeat_timeout=2.0, connect_timeout=2.0, reconnect=0.05, reconnect_max=0.5),
    membership=MembershipConfig(
        probe_interval=0.2,
        probe_timeout=0.1,
        suspicion_multiplier=3,
        suspicion_floor=2.0,
        gossip_interval=0.02,
        sync_interval=2.0,
        gossip_to_dead=1.0,
        reconnect_interval=1.0,
        tombstone=60.0,
        hint=5.0,
        reach=10.0,
    ),
)
