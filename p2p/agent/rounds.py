"""The machine of synchronous rounds: pushes out as credit allows, arrivals in, an adaptive deadline. No I/O, no clock.

Only a neighbour whose weight for the pair equals the own is mixed. Who misses the deadline gives its weight to the self
weight of that round; its late blocks still count against the state of *their* round, kept one round. A neighbour that is
late again and again is not waited for until it is in time: waiting for a persistently slow node would make gossip
exactly as slow as all-reduce.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import median

from p2p.agent.bundles import bundles
from p2p.agent.links import Link
from p2p.config import DeadlineConfig, ExchangeConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """One node's row in one round: self weight, (partner, weight that it gives to mine), (partner, weight that I give).

    A weight that I give of nan is the partner's to say.
    """

    round: int
    own: float
    outs: tuple[tuple[str, float], ...]
    ins: tuple[tuple[str, float], ...]
    part: int = 0  # of the state, that is exchanged


@dataclass(frozen=True, slots=True)
class Pushed:
    """Instruction: send blocks `first` .. `first + count - 1` of the state published in `round`."""

    partner: str
    exchange: int
    round: int
    first: int
    count: int
    weight: float


@dataclass(frozen=True, slots=True)
class Question:
    """Instruction: ask `partner`, behind all that was pushed to it, whether `exchange` has come."""

    partner: str
    exchange: int


@dataclass(frozen=True, slots=True)
class Mixed:
    """Instruction: combine. `parts`: per neighbour, in neighbour order, its weight and its blocks (first -> payload)."""

    plan: Plan
    parts: tuple[tuple[str, float, Mapping[int, object]], ...]
    skipped: tuple[str, ...]


class Arrived(Enum):
    """What became of a push."""

    KEPT = "kept"  # for this round, or one to come
    LATE = "late"  # for the round before: add w (y - s) with the state of that round
    STALE = "stale"  # older, or twice: dropped and counted
    UNEQUAL = "unequal"  # the pair computed different weights: not mixed


@dataclass(slots=True)
class Neighbour:
    """How timely a neighbour is."""

    lags: defaultdict[int, deque[float]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=32)))  # by part
    round: int = -1  # newest heard of
    exchange: int = -1  # newest that came
    skips: int = 0  # in a row
    ask_at: float = 0.0  # no question about what is under way before
    pause: float = 0.0  # between two of them


@dataclass(slots=True)
class Delivery:
    """What one neighbour pushed of one round."""

    weight: float = 0.0  # the sender's word on the pair's weight
    blocks: set[int] = field(default_factory=set)
    payloads: dict[int, object] = field(default_factory=dict)  # by first block, until they are combined


@dataclass(slots=True)
class RoundTally:
    skipped: int = 0
    late: int = 0
    stale: int = 0
    lost: int = 0  # pushes that a broken connection took along
    unequal: int = 0
    replaced: int = 0  # pushes that a newer round replaced before they had left
    missed: int = 0  # neighbours whose push of a round never joined


AHEAD = 2  # rounds ahead of the own for which arrivals are kept


class Rounds:
    """The machine. `blocks` gives (run, bytes) of each block, `parts` which of them a round of each part exchanges."""

    def __init__(
        self,
        blocks: Sequence[tuple[int, int]],
        config: ExchangeConfig,
        deadline: DeadlineConfig,
        first_id: int,
        parts: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.blocks = blocks
        self.config = config
        self.deadline = deadline
        self.links: dict[str, Link] = {}
        self.neighbours: dict[str, Neighbour] = {}
        self.tally = RoundTally()
        self.plan: Plan | None = None
        self.waiting = False
        self.first = 0  # a joiner's first round
        self._before: Plan | None = None
        self._began = 0.0
        self._limit = math.inf
        self._next = first_id
        self._queue: dict[str, deque[Pushed]] = {}
        self._out: dict[int, Pushed] = {}  # of this round, by exchange: to be sent again if they are lost
        self._arrived: dict[tuple[int, str], Delivery] = {}  # by round and partner
        self._received: dict[str, list[int]] = {}
        self._passed: set[str] = set()  # not to be waited for in this round
        self.parts = parts or [range(len(blocks))]
        self._bundles = [list(bundles(blocks, config.message_bytes, part)) for part in self.parts]

    def resume(self, first: int) -> None:
        """Go on from another's state, in this round: what was under way belongs to the state that was given up."""
        self.first = first
        self.plan = self._before = None
        self.waiting = False
        self._queue, self._out, self._arrived, self._passed = {}, {}, {}, set()

    # --- a round ---------------------------------------------------------------------------------------------------

    def next_round(self) -> int:
        """The own count, or the neighbours' where they have run ahead: who fell behind rejoins them at once.

        Else it would stay as many rounds behind for good, and nobody would mix what it pushes. The upper median counts,
        of those that are not slow: of two the one ahead, of more no single one; with the deadline off all wait for all.
        """
        own = self.plan.round + 1 if self.plan else self.first
        heard = sorted(n.round for p, n in self.neighbours.items() if n.round >= 0 and not self.slow(p))
        return max(own, heard[len(heard) // 2]) if heard and self.deadline.enabled else own

    def begin(self, plan: Plan, now: float, silent: bool = False) -> None:
        """The state of `plan.round` is published; pushes come from `tick`, as credit allows. `silent`: there are none."""
        self.tally.missed += self._missed()
        self._before, self.plan, self._began, self.waiting = self.plan, plan, now, True
        self.tally.replaced += sum(map(len, self._queue.values()))
        self._queue = {p: deque(self._pushes(plan, p, w)) for p, w in plan.outs if not silent}
        self._out = {}
        self._passed = {p for p, _ in plan.ins if self.slow(p)}
        self._limit = now + self._patience()
        self._arrived = {key: v for key, v in self._arrived.items() if key[0] >= plan.round - 1}
        for partner, _ in plan.ins:
            self._open_early(partner, now)

    def tick(self, now: float) -> Iterator[Pushed | Question]:
        """What to send now. A push that can't be sent is given back by `unsent`."""
        for partner, queue in self._queue.items():
            link = self.link(partner)
            link.retry(now)
            while queue and (link.idle or link.room(self._nbytes(queue[0]))):
                push = queue.popleft()
                self._out[push.exchange] = push
                link.leave(push.exchange, self._nbytes(push), now)
                yield push
        for partner, link in self.links.items():
            if now >= self._ask_at(partner, link):
                yield self._question(partner, link, now)

    def unsent(self, push: Pushed, now: float) -> None:
        """The transport had no room, or there is no route: the push leaves later, unless its round is over by then."""
        del self._out[push.exchange]
        link = self.link(push.partner)
        link.unsend(push.exchange)
        link.full_until = now + 0.01
        if push.partner in self._queue:
            self._queue[push.partner].appendleft(push)

    def wait_from(self, now: float) -> None:
        """Somebody waits only from now on, not from the beginning: there is at least the least patience left."""
        self._limit = max(self._limit, now + self.deadline.floor)

    def complete(self, now: float) -> bool:
        """Whether everybody's blocks are here, or the deadline has struck."""
        return now >= self._limit or all(p in self._passed or self._whole(p) for p, _ in self._plan.ins)

    def departed(self, now: float) -> bool:
        """Whether the own blocks have left, but to the slow, or the deadline has struck; the next round replaces the rest.

        With the deadline off they must have arrived: who waits for one that was lost would wait for ever.
        """
        return now >= self._limit or not any(self._owed(p) for p in self._queue if not self.slow(p))

    def _owed(self, partner: str) -> bool:
        under_way = not self.deadline.enabled and bool(self.link(partner).parcels)
        return under_way or bool(self._queue[partner])

    @property
    def wake(self) -> float:
        """When tick or complete has something to do next, if no event comes before."""
        return min(self.errand, self._limit) if self.waiting else self.errand

    @property
    def errand(self) -> float:
        """When tick has something to do next, if no event comes before."""
        times = [link.full_until for p, link in self.links.items() if link.full_until and self._queue.get(p)]
        times += [self._ask_at(p, link) for p, link in self.links.items()]
        return min(times, default=math.inf)

    def finish(self) -> Mixed:
        """End the round: what to combine, in neighbour order."""
        plan, parts, skipped = self._plan, [], []
        for partner, weight in plan.ins:
            delivery = self._arrived.get((plan.round, partner))
            if delivery is not None and delivery.blocks:
                parts.append((partner, delivery.weight if math.isnan(weight) else weight, delivery.payloads))
                delivery.payloads = {}
            if not self._whole(partner):
                skipped.append(partner)
                self.neighbour(partner).skips += self.neighbour(partner).round <= plan.round  # else it is not late, but ahead
        self.tally.skipped += len(skipped)
        self.waiting = False
        return Mixed(plan, tuple(parts), tuple(skipped))

    # --- events ----------------------------------------------------------------------------------------------------

    def pushed(
        self, partner: str, exchange: int, round: int, first: int, count: int, weight: float, payload: object, now: float
    ) -> Arrived:
        """A push came."""
        self._received.setdefault(partner, []).append(exchange)
        neighbour = self.neighbour(partner)
        neighbour.round, neighbour.exchange = max(neighbour.round, round), max(neighbour.exchange, exchange)
        plan = self._plan_of(round)
        if (plan is None and round <= self._current) or not self._take(partner, round, first, count, weight):
            self.tally.stale += 1
            return Arrived.STALE
        if plan is None:
            return self._early(partner, round, first, payload)
        if not self._equal(plan, partner):
            del self._arrived[round, partner]
            return Arrived.UNEQUAL
        return self._now(plan, partner, first, payload, now)

    def receipt(self, partner: str, exchanges: Sequence[int], now: float) -> None:
        """The partner has these pushes: credit returns. What left before them and is not among them was lost."""
        link = self.link(partner)
        for exchange in exchanges:
            link.receipt(exchange, now)
        self._count_lost(partner, max(exchanges, default=0))

    def has(self, partner: str, exchange: int) -> bool:
        """The answer to a question: whether this push has come."""
        return self.neighbour(partner).exchange >= exchange

    def told(self, partner: str, exchange: int, has: bool, now: float) -> None:
        """A question is answered."""
        if has:
            self.link(partner).receipt(exchange, now)
        self._count_lost(partner, exchange + 1)

    def receipts(self) -> dict[str, list[int]]:
        """Pushes that came and whose senders have not been told; to be told now."""
        received, self._received = self._received, {}
        return received

    def partners(self, live: Mapping[str, object], now: float) -> None:
        """The view changed: nobody waits for the gone, and nobody waits long for those whose view may differ."""
        for known in (self.links, self.neighbours, self._queue, self._received):
            for gone in [p for p in known if p not in live]:
                known.pop(gone)
        self._passed.update(p for p, _ in (self.plan.ins if self.plan else ()) if p not in live)
        self._limit = min(self._limit, now + self.deadline.change)

    # --- the neighbours --------------------------------------------------------------------------------------------

    def link(self, partner: str) -> Link:
        return self.links.setdefault(partner, Link(self.config))

    def neighbour(self, partner: str) -> Neighbour:
        return self.neighbours.setdefault(partner, Neighbour())

    def slow(self, partner: str) -> bool:
        """Late so often in a row that it is not waited for; never with the deadline off."""
        return self.deadline.enabled and self.neighbour(partner).skips >= self.deadline.patience

    # --- inside ----------------------------------------------------------------------------------------------------

    @property
    def _plan(self) -> Plan:
        assert self.plan is not None, "begin comes first"
        return self.plan

    def _patience(self) -> float:
        """Seconds to wait: the typical neighbour's median lag, and as much again or some deviations."""
        part = self._plan.part
        timed = sorted((n.lags[part] for n in self.neighbours.values() if n.lags[part]), key=median)
        if not self.deadline.enabled:
            return math.inf
        if not timed:
            return self.deadline.first
        lags = timed[(len(timed) - 1) // 2]
        middle = median(lags)
        deviation = 1.4826 * median(abs(lag - middle) for lag in lags)
        return middle + max(self.deadline.floor, self.deadline.share * middle, self.deadline.deviations * deviation)

    def _equal(self, plan: Plan, partner: str) -> bool:
        """Whether both ends computed the same weight; views may differ for a while."""
        own, theirs = dict(plan.ins).get(partner, -1.0), self._arrived[plan.round, partner].weight
        if math.isnan(own) or math.isclose(own, theirs, rel_tol=1e-12):
            return True
        self.tally.unequal += 1
        if plan is self.plan:
            self._passed.add(partner)
        return False

    def _open_early(self, partner: str, now: float) -> None:
        """What came before its round began is checked and timed now."""
        if (self._plan.round, partner) not in self._arrived:
            if self.neighbour(partner).round > self._plan.round:
                self._passed.add(partner)  # it began in a later round, nothing of this one will come
            return
        if not self._equal(self._plan, partner):
            del self._arrived[self._plan.round, partner]
        elif self._whole(partner):
            self._timely(partner, now)

    @property
    def _current(self) -> int:
        return self.plan.round if self.plan else -1

    def _plan_of(self, round: int) -> Plan | None:
        """Of this round or the one before it."""
        return next((p for p in (self.plan, self._before) if p is not None and p.round == round), None)

    def _take(self, partner: str, round: int, first: int, count: int, weight: float) -> bool:
        """Note which blocks came; False for those that had come. Of rounds far ahead only the newest are kept."""
        self._arrived.setdefault((round, partner), Delivery())
        ahead = sorted(key for key in self._arrived if key[1] == partner and key[0] > self._current)
        for key in ahead[:-AHEAD]:
            del self._arrived[key]
        delivery, blocks = self._arrived.get((round, partner)), range(first, first + count)
        if delivery is None or not delivery.blocks.isdisjoint(blocks):
            return False
        delivery.blocks.update(blocks)
        delivery.weight = weight
        return True

    def _early(self, partner: str, round: int, first: int, payload: object) -> Arrived:
        """For a round to come: its sender is past the present one, of which nothing more will come."""
        if self.waiting and (self._plan.round, partner) not in self._arrived:
            self._passed.add(partner)
        self._arrived[round, partner].payloads[first] = payload
        return Arrived.KEPT

    def _now(self, plan: Plan, partner: str, first: int, payload: object, now: float) -> Arrived:
        """For this round, in time or late, or for the one before."""
        if plan is self.plan and self._whole(partner):
            self._timely(partner, now)
        if plan is self.plan and self.waiting:
            self._arrived[plan.round, partner].payloads[first] = payload
            return Arrived.KEPT
        self.tally.late += 1
        return Arrived.LATE

    def _timely(self, partner: str, now: float) -> None:
        neighbour = self.neighbour(partner)
        neighbour.lags[self._plan.part].append(max(0.0, now - self._began))
        if now < self._limit:
            neighbour.skips = 0

    def _whole(self, partner: str) -> bool:
        return self._joined(self._plan, partner)

    def _joined(self, plan: Plan, partner: str) -> bool:
        delivery, blocks = self._arrived.get((plan.round, partner)), len(self.parts[plan.part])
        return not blocks or (delivery is not None and len(delivery.blocks) == blocks)

    def _missed(self) -> int:
        """Of the round before the present one, for which nothing counts any more."""
        before = self._before
        return sum(not self._joined(before, p) for p, _ in before.ins) if before is not None else 0

    def _pushes(self, plan: Plan, partner: str, weight: float) -> Iterator[Pushed]:
        for first, count in self._bundles[plan.part]:
            self._next += 1
            yield Pushed(partner, self._next - 1, plan.round, first, count, weight)

    def _nbytes(self, push: Pushed) -> int:
        return sum(size for _, size in self.blocks[push.first : push.first + push.count])

    def _ask_at(self, partner: str, link: Link) -> float:
        return max(link.overdue, self.neighbour(partner).ask_at)

    def _question(self, partner: str, link: Link, now: float) -> Question:
        """A receipt is overdue. The answer comes behind all other receipts, so it tells what was lost."""
        neighbour = self.neighbour(partner)
        neighbour.pause = min(2 * neighbour.pause or self.config.floor, 10 * self.config.floor)
        neighbour.ask_at = now + neighbour.pause
        return Question(partner, next(reversed(link.parcels)))

    def _count_lost(self, partner: str, before: int) -> None:
        """What left before this exchange and is still under way never arrives: it is sent again if its round goes on.

        Under a new id, for the order of ids is the order of sending.
        """
        link, queue = self.link(partner), self._queue.get(partner)
        self.neighbour(partner).pause = 0.0
        for exchange in [e for e in link.parcels if e < before]:
            link.unsend(exchange)
            push = self._out.pop(exchange, None)
            self.tally.lost += 1
            if push is not None and queue is not None:
                queue.append(replace(push, exchange=self._next))
                self._next += 1
