"""Every message of the protocol, one frozen dataclass each; `wire.py` turns them into frames and back.

Field types are those that the strict schema knows: int, float (finite), bool, str, bytes, another dataclass,
and tuples of one of these. The header's 256 KiB bound every length; what a value means is checked by its reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

PROTOCOL = 1
"""The wire version; separate from the package's. Nodes of different versions refuse each other."""


class Phase(IntEnum):
    """What a node says of itself, in its signed record."""

    JOINING = 0  # visible, no partner yet: its state is still on the way
    TRAINING = 1
    ARRIVED = 2  # in consensus(): exchanges on, with no local update
    DONE = 3  # arrived, and its last exchanges differed by less than the tolerance
    LEFT = 4


@dataclass(frozen=True, slots=True)
class Envelope:
    """What each header begins with: who speaks, in which swarm, and which view it holds."""

    swarm: bytes  # 16 bytes
    node: str  # 32 hex digits: blake2b of the public key
    incarnation: int
    view: int  # digest of the sender's view, 64 bits


@dataclass(frozen=True, slots=True)
class Record:
    """One node's signed word about itself."""

    key: bytes  # Ed25519 public key, 32 bytes; the node id is its hash
    control: str  # tcp://host:port
    data: str
    incarnation: int
    phase: int  # a Phase
    site: str
    dial_only: bool  # its addresses can't be dialled: it is reached through the connections that it opened
    contract: bytes  # digest of its contract, 16 bytes
    signature: bytes  # Ed25519 over all of the above, 64 bytes


@dataclass(frozen=True, slots=True)
class Accusation:
    """`accuser` holds `node` for suspect, or for dead, at this incarnation."""

    node: str
    incarnation: int
    accuser: str
    dead: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """One node's signed word about its links: round trip, bandwidth and queueing to each member that it measured."""

    node: str
    version: int  # the highest counts
    links: bytes  # see `p2p.agent.figures`
    signature: bytes  # Ed25519 over all of the above, 64 bytes


@dataclass(frozen=True, slots=True)
class News:
    """What membership piggybacks."""

    records: tuple[Record, ...] = ()
    accusations: tuple[Accusation, ...] = ()
    figures: tuple[Figures, ...] = ()


@dataclass(frozen=True, slots=True)
class Pulse:
    """A node's progress, in a few bytes: its step, its seconds and samples per step (0 where not known)."""

    step: int
    pace: float
    samples: float = 0.0


@dataclass(frozen=True, slots=True)
class Contract:
    """What all nodes of a swarm must agree on; empty strings in a joiner's are taken from the swarm."""

    schema: bytes  # fingerprint of the model schema, 16 bytes
    tensors: bytes  # 4 bytes of hash per tensor, in order: finds the first that differs
    optimizer: str
    algorithm: str
    topology: str
    fingerprint: bytes  # of the topology's mixing, 16 bytes
    seed: int


# --- joining ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Knock:
    """May I come in, and on what terms? Asked before torch is imported."""

    version: int


@dataclass(frozen=True, slots=True)
class Terms:
    """The answer to a knock: the swarm's contract, its name, how many live in it, and where some of them are."""

    version: int
    contract: Contract
    record: Record
    members: int
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hello:
    """A joiner presents itself under a full contract."""

    contract: Contract
    record: Record


@dataclass(frozen=True, slots=True)
class Welcome:
    """The contract is ours too; here is everybody."""

    news: News


@dataclass(frozen=True, slots=True)
class Refusal:
    """No, and why. For a schema, `index` is the first tensor that differs and `theirs` describes ours."""

    reason: str  # protocol, schema, optimizer, algorithm, topology, seed, busy, left
    theirs: str
    index: int


# --- membership (SWIM) -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ping:
    seq: int
    target: str  # the node that should answer
    pulse: Pulse
    news: News


@dataclass(frozen=True, slots=True)
class Pong:
    seq: int
    pulse: Pulse
    news: News


@dataclass(frozen=True, slots=True)
class PingRequest:
    """Please probe `target` for me, and pass its pong on, or a nack."""

    seq: int
    target: str
    news: News


@dataclass(frozen=True, slots=True)
class Nack:
    seq: int


@dataclass(frozen=True, slots=True)
class Gossip:
    news: News


@dataclass(frozen=True, slots=True)
class Sync:
    """Push-pull: all I know; `reply` asks for all that you know."""

    news: News
    reply: bool


# --- state for a joiner ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DonorQuestion:
    """How far are you, and how many joiners do you serve?"""


@dataclass(frozen=True, slots=True)
class DonorAnswer:
    pulse: Pulse
    origin: int  # the step from which it has trained: a checkpoint's or a donor's; it is further once its swarm trains
    guests: int


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    whole: bool  # all blocks of one moment; else each as it is when it is asked for
    half: bytes  # the joiner's half of the key that seals them


@dataclass(frozen=True, slots=True)
class SnapshotOffer:
    """A snapshot is pinned: its number, and the donor's step, epoch and round at that moment. The manifest's head."""

    snapshot: int
    step: int
    epoch: int
    round: int
    extras: str  # the learning rate schedule's and the GradScaler's state (JSON), or empty
    half: bytes  # the donor's half of the key that seals the blocks
    signature: bytes  # the donor's


@dataclass(frozen=True, slots=True)
class BlocksRequest:
    snapshot: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class SnapshotDone:
    snapshot: int


# --- data ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shard:
    """What the payload frame holds: `count` consecutive blocks of one kind and dtype."""

    first: int  # block number
    count: int
    kind: int  # an optim.Kind
    codec: str
    dtype: str  # of the elements on the wire, where the codec keeps one
    elements: int
    checksum: int  # xxh3 of the payload, 64 bits


@dataclass(frozen=True, slots=True)
class Ask:
    """Opens a swap: here are my blocks; answer with the encoded change. The exchange id covers all its blocks."""

    exchange: int
    weight: float
    pulse: Pulse
    settled: tuple[int, ...]  # exchanges of ours whose answers came: yours may be dropped
    bounds: tuple[float, ...]  # per block, the norm of a difference that counts in full; 0: any
    shard: Shard
    bases: tuple[int, ...] = ()  # per block, checksum of the replica that it is a change to; 0: remember it as the replica


@dataclass(frozen=True, slots=True)
class Reask:
    """An answer never came: again, please, by the header alone."""

    exchange: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The change for the accepted blocks (bit i: block first + i); none accepted means declined.

    The initiator takes a `share` of it, all but where it has seen more samples (see Async).
    """

    exchange: int
    accepted: int
    weight: float
    pulse: Pulse
    shard: Shard
    share: float = 1.0
    unknown: int = 0  # blocks of whose bases there is no replica here now


@dataclass(frozen=True, slots=True)
class Push:
    """One way: a synchronous round's shard."""

    exchange: int
    round: int
    weight: float
    pulse: Pulse
    shard: Shard
    loss: float = 0.0  # of what is published, where merges compare losses


@dataclass(frozen=True, slots=True)
class Settled:
    """These exchanges are through: answers may be dropped, credit returns."""

    exchanges: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SnapshotBlocks:
    """Some blocks of a snapshot."""

    snapshot: int
    shard: Shard
    mark: bytes  # of the manifest's line for them and the payload, by the key that donor and joiner share


# --- work ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lease:
    """What one node has taken to work on. The highest version counts; a lease is void when none newer comes for `term`."""

    node: str
    version: int
    pace: float  # seconds per sample; 0 where not measured yet
    term: float  # seconds; 0: this node takes no work now
    begun: int  # so many of `taken`, the first ones, are being worked on; the others are claimed
    taken: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What is done, and who is at what, of data set number `number`, which has `chunks` chunks an epoch.

    Chunks are counted through all epochs. Finished are all below `floor`, and those that the bitmap adds.
    """

    number: int
    chunks: int
    floor: int
    finished: bytes
    leases: tuple[Lease, ...]
    reply: bool  # asks for all that the receiver knows


# --- a check before joining --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measure:
    """Bytes there, and so many back: how fast is this connection?"""

    seq: int
    reply: int  # bytes of payload that the answer should have
    shard: Shard


@dataclass(frozen=True, slots=True)
class Measured:
    seq: int
    state: int  # bytes of the shared state of this swarm's model
    shard: Shard


@dataclass(frozen=True, slots=True)
class CallBack:
    """Please dial this address and say `Called` there: can others reach me?"""

    address: str
    token: int


@dataclass(frozen=True, slots=True)
class Called:
    token: int


@dataclass(frozen=True, slots=True)
class CalledBack:
    """How that went; an empty reason: it was sent."""

    token: int
    reason: str


# --- status ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatusRequest:
    pass


@dataclass(frozen=True, slots=True)
class MemberStatus:
    node: str
    address: str
    state: str  # joining, alive, suspect, dead, left
    phase: int
    site: str
    dial_only: bool
    step: int  # as last heard
    pace: float


@dataclass(frozen=True, slots=True)
class LinkStatus:
    node: str
    round_trip: float  # seconds
    bandwidth: float  # bytes a second, there
    back: float  # from there to here, as the partner says; 0: it has said nothing
    queueing: float  # seconds that a message waits on top of the round trip
    credit: int  # bytes
    sent: int
    received: int
    paused: bool


@dataclass(frozen=True, slots=True)
class SpanStatus:
    """What members say of the links from one site to another, or inside one: medians; 0: not measured."""

    source: str
    target: str
    round_trip: float  # seconds
    bandwidth: float  # bytes a second
    queueing: float  # seconds
    links: int  # measured ones


@dataclass(frozen=True, slots=True)
class Status:
    """What one node knows of the swarm and of its own links."""

    topology: str
    algorithm: str
    step: int
    distance: float
    members: tuple[MemberStatus, ...]
    links: tuple[LinkStatus, ...]
    spans: tuple[SpanStatus, ...]


Message = (
    Knock | Terms | Hello | Welcome | Refusal
    | Ping | Pong | PingRequest | Nack | Gossip | Sync
    | SnapshotRequest | SnapshotOffer | BlocksRequest | SnapshotDone | DonorQuestion | DonorAnswer
    | Ask | Reask | Answer | Push | Settled | SnapshotBlocks
    | StatusRequest | Status
    | Work | Measure | Measured | CallBack | Called | CalledBack
)  # fmt: skip

TABLE: dict[int, type] = {
    1: Knock, 2: Terms, 3: Hello, 4: Welcome, 5: Refusal,
    10: Ping, 11: Pong, 12: PingRequest, 13: Nack, 14: Gossip, 15: Sync,
    20: SnapshotRequest, 21: SnapshotOffer, 22: BlocksRequest, 23: SnapshotDone,
    24: DonorQuestion, 25: DonorAnswer,
    30: Ask, 31: Reask, 32: Answer, 33: Push, 34: Settled, 35: SnapshotBlocks,
    40: StatusRequest, 41: Status,
    50: Work, 51: Measure, 52: Measured, 53: CallBack, 54: Called, 55: CalledBack,
}  # fmt: skip
"""Message numbers on the wire. A number is never reused."""
