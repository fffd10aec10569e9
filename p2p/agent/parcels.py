"""The machine of push-sum: what to give to whom, which parcels to send again, what was taken already. No I/O, no clock.

A parcel counts for its sender until the receipt comes. It is sent again under the same id until then, and a receiver takes
each id once; so mass neither gets lost with a message nor doubles. Parcels for a node that is gone are taken back.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from p2p.agent.links import Link
from p2p.agent.rounds import Plan
from p2p.config import DeadlineConfig, ExchangeConfig

WINDOW = 256
"""Parcels to one partner under way at most."""
MEMORY = 4 * WINDOW
"""Newest ids of one partner that are remembered; older ones were taken long ago."""
AHEAD = 2
"""Rounds ahead of the own whose parcels wait for it."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Instruction: give this share of what is there of a bundle, and send it; `again`: send what was given once more."""

    partner: str
    exchange: int
    round: int
    bundle: int
    share: float
    again: bool = False


@dataclass(slots=True)
class Seen:
    """Which ids of one partner were taken."""

    ids: set[int] = field(default_factory=set)
    newest: int = -1

    def first(self, exchange: int) -> bool:
        """Whether this id is new; it is not from now on."""
        if exchange in self.ids or exchange <= self.newest - MEMORY:
            return False
        self.newest = max(self.newest, exchange)
        self.ids.add(exchange)
        if len(self.ids) > 2 * MEMORY:
            self.ids = {i for i in self.ids if i > self.newest - MEMORY}
        return True


@dataclass(slots=True)
class Tally:
    """What happened, for reports."""

    given: int = 0
    taken: int = 0
    again: int = 0  # sent once more
    kept: int = 0  # not given, for want of credit
    returned: int = 0  # taken back from under way to the gone
    spoilt: int = 0  # refused because it was not finite: the mean has moved


class Parcels:
    """`sizes`: bytes of each bundle. `strict`: a round takes only what was given in it, and waits for that."""

    def __init__(
        self, sizes: Sequence[int], config: ExchangeConfig, deadline: DeadlineConfig, first_id: int, strict: bool
    ) -> None:
        self.sizes = sizes
        self.config = config
        self.deadline = deadline
        self.strict = strict
        self.links: dict[str, Link] = {}
        self.tally = Tally()
        self.plan: Plan | None = None
        self.first = 0  # a joiner's first round
        self.open: dict[int, Parcel] = {}  # under way, in order of sending
        self._next = first_id
        self._rest = [1.0] * len(sizes)  # of each bundle, what has not been given in this round
        self._todo: deque[tuple[int, str, float]] = deque()  # (bundle, partner, share of the whole)
        self._turn = 0  # bundle that was first in line
        self._again: dict[str, float] = {}  # not before
        self._pause: dict[str, float] = {}
        self._seen: dict[str, Seen] = {}
        self._heard: dict[str, int] = {}  # newest round
        self._came: dict[tuple[int, str], int] = {}  # bundles of a round
        self._receipts: dict[str, list[int]] = {}
        self.skipped: tuple[str, ...] = ()  # missed the last deadline
        self._skips: dict[str, int] = {}  # in a row
        self._lags: deque[float] = deque(maxlen=32)
        self._began = 0.0
        self._limit = math.inf

    # --- a round ---------------------------------------------------------------------------------------------

    @property
    def round(self) -> int:
        return self.plan.round if self.plan else -1

    def next_round(self) -> int:
        """The own count, or the others' where that has run ahead."""
        own = self.plan.round + 1 if self.plan else self.first
        theirs = max(self._heard.values(), default=0)
        return theirs if theirs > own + AHEAD else own

    def resume(self, first: int) -> None:
        """Go on from another's state, in this round; what is not given yet is of the state that was given up."""
        self.first, self.plan = first, None
        self._todo.clear()
        self._came = {}

    def begin(self, plan: Plan, now: float) -> None:
        """What was not given in the last round is kept; a new round gives its shares, as credit allows."""
        self.tally.kept += len(self._todo)
        order = [(self._turn + i) % len(self.sizes) for i in range(len(self.sizes))]
        self._todo = deque((bundle, partner, share) for bundle in order for partner, share in plan.outs)
        self._rest = [1.0] * len(self.sizes)
        self.skipped = ()
        self.plan, self._began, self._limit = plan, now, now + self._patience()
        self._came = {key: count for key, count in self._came.items() if key[0] >= plan.round}

    def tick(self, now: float) -> Iterator[Parcel]:
        """What to send now."""
        yield from self._overdue(now)
        for _ in range(len(self._todo)):
            bundle, partner, share = self._todo.popleft()
            if self._room(partner, self.sizes[bundle], now):
                self._turn = (bundle + 1) % len(self.sizes)
                yield self._give(partner, bundle, share, now)
            else:
                self._todo.append((bundle, partner, share))

    def hand_over(self, partner: str, now: float) -> Iterator[Parcel]:
        """Leaving: all that is there goes to this partner."""
        self._todo.clear()
        for bundle in range(len(self.sizes)):
            self._rest[bundle] = 1.0
            yield self._give(partner, bundle, 1.0, now)

    def complete(self, now: float) -> bool:
        """Whether the round is over: all is given and all has come, or the deadline has struck."""
        assert self.plan is not None, "begin comes first"
        missing = [p for p, _ in self.plan.ins if self._missing(p)]
        if now >= self._limit:
            self.skipped = tuple(missing)
            self._skips = {p: self._skips.get(p, 0) + 1 for p in missing}
            self.tally.kept += len(self._todo)
            self._todo.clear()
            return True
        done = not self._todo and all(map(self.slow, missing))
        if done:
            self._lags.append(now - self._began)
        return done

    def _missing(self, partner: str) -> bool:
        """Whether more of this round is to come; who is past it has sent all, and what was lost comes when it does."""
        whole = self._came.get((self.round, partner), 0) >= len(self.sizes)
        return not whole and self._heard.get(partner, -1) <= self.round

    def slow(self, partner: str) -> bool:
        """Late so often in a row that it is not waited for."""
        return self._skips.get(partner, 0) >= self.deadline.patience

    @property
    def wake(self) -> float:
        """When `tick` or `complete` has something to do next, if no event comes before."""
        if self._receipts:
            return 0.0
        times = [max(link.overdue, self._again.get(p, 0.0)) for p, link in self.links.items()]
        times += [link.full_until for link in self.links.values() if link.full_until]
        return min([*times, self._limit] if self.strict and self._limit > self._began else times, default=math.inf)

    def end(self) -> None:
        """The wait is over."""
        self._limit = math.inf

    # --- events ----------------------------------------------------------------------------------------------

    def arrived(self, partner: str, exchange: int, round: int) -> bool:
        """A parcel came; whether to take it, which is once."""
        self._receipts.setdefault(partner, []).append(exchange)
        if not self._seen.setdefault(partner, Seen()).first(exchange):
            return False
        self._heard[partner] = max(self._heard.get(partner, 0), round)
        if round >= self.round:
            count = self._came[round, partner] = self._came.get((round, partner), 0) + 1
            if count >= len(self.sizes):
                self._skips.pop(partner, None)
        self.tally.taken += 1
        return True

    def took(self, partner: str, exchange: int) -> bool:
        """Whether a parcel came already: its receipt was lost."""
        seen = self._seen.get(partner)
        return seen is not None and exchange in seen.ids

    def admits(self, round: int, bundle: int) -> bool:
        """Whether a parcel joins now: in a strict round only what was given in it, after the own shares are gone."""
        if not self.strict or round > self.round + AHEAD:
            return True
        return round < self.round or (round == self.round and all(todo[0] != bundle for todo in self._todo))

    def receipt(self, partner: str, exchanges: Sequence[int], now: float) -> list[int]:
        """The partner has taken these; returns those that were under way."""
        link, once = self.link(partner), dict.fromkeys(exchanges)  # what was sent again may have arrived twice
        known = [e for e in once if e in self.open and self.open[e].partner == partner]
        for exchange in known:
            link.receipt(exchange, now)
            del self.open[exchange]
        if known:
            self._pause.pop(partner, None)
            self._again.pop(partner, None)
        return known

    def receipts(self) -> dict[str, list[int]]:
        """Parcels that came and whose senders have not been told; to be told now."""
        receipts, self._receipts = self._receipts, {}
        return receipts

    def partners(self, live: Container[str]) -> list[int]:
        """The view changed: parcels under way to who is gone are to be taken back."""
        back = [e for e, parcel in self.open.items() if parcel.partner not in live]
        for exchange in back:
            del self.open[exchange]
        self.tally.returned += len(back)
        for known in (self.links, self._again, self._pause, self._heard, self._receipts, self._skips):
            for gone in [p for p in known if p not in live]:
                known.pop(gone)
        self._todo = deque(todo for todo in self._todo if todo[1] in live)
        self._limit = min(self._limit, self._began + self.deadline.change) if back else self._limit
        return back

    def full(self, partner: str, now: float) -> None:
        """The transport had no room, or there is no route: again a little later."""
        self.link(partner).full_until = now + 0.01
        self._again[partner] = now + 0.01

    def link(self, partner: str) -> Link:
        return self.links.setdefault(partner, Link(self.config))

    # --- inside ----------------------------------------------------------------------------------------------

    def _room(self, partner: str, nbytes: int, now: float) -> bool:
        link = self.link(partner)
        link.retry(now)
        return len(link.parcels) < WINDOW and (link.idle or link.room(nbytes))

    def _give(self, partner: str, bundle: int, share: float, now: float) -> Parcel:
        """`share` is of what there was when the round began; some of that may be gone."""
        rest = self._rest[bundle]
        self._rest[bundle] = rest - share
        parcel = Parcel(partner, self._next, self.round, bundle, min(share / rest, 1.0))
        self._next += 1
        self.open[parcel.exchange] = parcel
        self.link(partner).leave(parcel.exchange, self.sizes[bundle], now)
        self.tally.given += 1
        return parcel

    def _overdue(self, now: float) -> Iterator[Parcel]:
        """All that is under way to a partner whose receipts are overdue goes once more, at growing intervals."""
        for partner, link in self.links.items():
            if now < max(link.overdue, self._again.get(partner, 0.0)):
                continue
            pause = self._pause[partner] = min(2 * self._pause.get(partner, self.config.floor / 2), 10 * self.config.floor)
            self._again[partner] = now + pause
            for exchange in list(link.parcels):
                p = self.open[exchange]
                self.tally.again += 1
                yield Parcel(p.partner, p.exchange, p.round, p.bundle, p.share, again=True)

    def _patience(self) -> float:
        if not self.deadline.enabled:
            return math.inf
        if not self._lags:
            return self.deadline.first
        middle = median(self._lags)
        deviation = 1.4826 * median(abs(lag - middle) for lag in self._lags)
        return middle + max(self.deadline.floor, self.deadline.deviations * deviation)
