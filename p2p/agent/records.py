"""What is known of one node: its signed record, and how it stands.

Three maxima decide how a node stands: the incarnation of its record, and the highest ones at which it was called suspect and
dead. A maximum doesn't care about order or repetition, so merging is commutative, idempotent and monotone by construction,
and no accusation brings anybody to life: only the node's own signature does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from p2p.agent.dissemination import Item
from p2p.net import keys
from p2p.net.messages import Accusation, Figures, News, Phase, Pulse, Record

DAY = 86_400_000
"""In milliseconds. A record further in the future is refused: one bad incarnation must not make a node unrefutable."""
HOUR = 3_600_000
"""Accusations stop this much short of that, so that there is always room to refute."""
NEWS_BYTES = 192 * 1024
"""The most that one message's news may take, leaving room in the 256 KiB of a header."""

UNHEARD = Pulse(0, 0.0)

identify = lru_cache(maxsize=16384)(keys.node_id)
"""Node id of a public key; the hash is taken once per process and key."""


class State(StrEnum):
    """How a node stands, as seen from here."""

    JOINING = "joining"
    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"
    LEFT = "left"


LIVE = frozenset({State.JOINING, State.ALIVE, State.SUSPECT})
HELD = frozenset({State.SUSPECT, State.DEAD})
"""States that a living node would refute."""


@dataclass(slots=True)
class MemberInfo:
    """One node as known here; only membership changes it."""

    record: Record
    since: float
    """When `state` became what it is, in seconds of the local clock."""
    state: State = State.JOINING
    pulse: Pulse = UNHEARD
    """Its step and pace as last heard."""
    heard: float = -math.inf
    """When anything last came from it."""
    round_trips: tuple[float, ...] = ()
    """Of the last few probes that it answered itself, in seconds."""
    told: float = -math.inf
    """When it was last told what it is accused of."""
    suspected: int = -1
    """Highest incarnation at which somebody called it suspect."""
    buried: int = -1
    """Highest incarnation at which somebody called it dead."""
    accuser: str = ""

    def judge(self) -> State:
        """The state that the three maxima add up to."""
        if self.buried >= self.record.incarnation and not (self.has_left and self.buried == self.record.incarnation):
            return State.DEAD
        if self.has_left:
            return State.LEFT
        if self.suspected >= self.record.incarnation:
            return State.SUSPECT
        return State.JOINING if self.record.phase == Phase.JOINING else State.ALIVE

    def accuse(self, accusation: Accusation) -> bool:
        """Take an accusation in; whether a maximum rose."""
        known = self.buried if accusation.dead else self.suspected
        if accusation.incarnation <= known:
            return False
        if accusation.dead:
            self.buried = accusation.incarnation
        else:
            self.suspected = accusation.incarnation
        self.accuser = accusation.accuser
        return True

    def accusation(self, node: str) -> Accusation:
        """What `node`, whose info this is, stands accused of."""
        dead = self.state is State.DEAD
        return Accusation(node, self.buried if dead else self.suspected, self.accuser, dead)

    @property
    def has_left(self) -> bool:
        """It said so itself."""
        return self.record.phase == Phase.LEFT

    @property
    def in_view(self) -> bool:
        """Whether topologies count on it."""
        return self.state in LIVE and self.record.phase != Phase.JOINING


def boot_incarnation(persisted: int, wall_milliseconds: int) -> int:
    """A restarted node's first incarnation: above all that it had, even where nothing was kept (`persisted` = -1)."""
    return max(persisted + 1, wall_milliseconds)


def supersedes(new: Record, old: Record) -> bool:
    """Whether `new` is the later word; the last two are for records that should not differ, so that all agree on one."""
    if new.incarnation != old.incarnation:
        return new.incarnation > old.incarnation
    return (new.phase, new.signature) > (old.phase, old.signature)


def well_formed(record: Record) -> bool:
    """Lengths and ranges, before anything is kept or computed."""
    return (
        len(record.key) == 32
        and len(record.contract) == 16
        and len(record.signature) == 64
        and len(record.control) <= 256
        and len(record.data) <= 256
        and len(record.site) <= 64
        and Phase.JOINING <= record.phase <= Phase.LEFT
        and record.incarnation >= 0
    )


def objection(record: Record, contract: bytes, horizon: float, verify: Callable[[Record], bool]) -> str:
    """Why a record is not taken; empty where it is. The cheap checks come first."""
    if not well_formed(record):
        return "malformed"
    if record.contract != contract:
        return "contract"
    if record.incarnation > horizon:
        return "incarnation"
    return "" if verify(record) else "signature"


@lru_cache(maxsize=8)
def once_per_record(verify: Callable[[Record], bool]) -> Callable[[Record], bool]:
    """`verify`, called once per process and record: all machines of a process share the answers."""
    return lru_cache(maxsize=16384)(verify)


def batches(items: Iterable[Item]) -> Iterator[News]:
    """All of it, in as few messages as fit; at least one, be it empty."""
    taken: list[Item] = []
    size = 0
    for item in items:
        if size + _size(item) > NEWS_BYTES:
            yield make_news(taken)
            taken, size = [], 0
        size += _size(item)
        taken.append(item)
    yield make_news(taken)


def make_news(items: Iterable[Item]) -> News:
    """The items by kind, in their order."""
    given = tuple(items)
    return News(
        tuple(item for item in given if isinstance(item, Record)),
        tuple(item for item in given if isinstance(item, Accusation)),
        tuple(item for item in given if isinstance(item, Figures)),
    )


def _size(item: Item) -> int:
    if isinstance(item, Record):
        return 160 + len(item.control) + len(item.data) + 4 * len(item.site)
    return 120 if isinstance(item, Accusation) else 130 + len(item.links)
