"""What a node keeps about one neighbour: bytes under way, measured round trip and bandwidth, and the credit that follows.

Measured from the node's own acknowledgements, without probing traffic: each receipt gives one delivery rate (bytes
delivered between its sending and its receipt, over that time); a link that is never idle is let run dry now and then for
its round trip (Cardwell et al., "BBR", 2016).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median

from p2p.config import ExchangeConfig

WINDOW = 16  # receipts that the rate looks back on
FEW = 2  # receipts that it looks back on at least
LATELY = 1.0  # and seconds: a link that has become thin has few receipts, and must not live on those from before
ALONE = 16  # round trips looked back on
HOLD = 0.25  # seconds that one message may hold a link
EXACT = 0.04
"""The same of what the user's limits allow: to so much of a second they hold."""
STALE = 5.0
"""Seconds after which a link that was never idle is let run dry, to measure its round trip again."""


@dataclass(slots=True)
class Parcel:
    """One message under way whose receipt is awaited."""

    exchange: int
    nbytes: int
    sent: float
    delivered: int  # bytes that the link had delivered when this one left
    alone: bool  # nothing else was under way: its round trip holds no waiting for others


@dataclass(slots=True)
class Link:
    """One neighbour. Times in seconds, sizes in bytes."""

    config: ExchangeConfig
    ceiling: float = math.inf  # bytes a second that the user's limits allow
    sent: int = 0
    received: int = 0
    delivered: int = 0
    under_way: int = 0
    parcels: dict[int, Parcel] = field(default_factory=dict)
    round_trips: deque[float] = field(default_factory=lambda: deque(maxlen=ALONE))
    round_trip: float = 0.0
    """The least of the last round trips of parcels that left alone; 0 before the first receipt.

    Those that queued behind others show the credit, not the link: credit would grow by its own making.
    """
    measured: float = math.inf  # when the round trip was, last
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))  # beyond the round trip, of the last receipts
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    rated: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))  # when each rate was
    bandwidth: float = 0.0
    """The best recent delivery rate; 0 before the first receipt."""
    stale: bool = False  # the round trip was not measured for long
    full_until: float = 0.0  # the transport had no room; tried again then, or after a receipt

    @property
    def queueing(self) -> float:
        """Seconds that a message takes on top of the round trip, in the median of the last ones; 0 before the first receipt."""
        return median(self.waits) if self.waits else 0.0

    @property
    def message(self) -> int:
        """Bytes of the longest message: what the link carries while others can wait for it."""
        held = min(HOLD * self.bandwidth if self.rates else math.inf, EXACT * self.ceiling)
        return int(min(max(held, self.config.block_bytes), self.config.message_bytes))

    @property
    def credit(self) -> int:
        """Bytes that may be under way: twice bandwidth x round trip, so that a faster link shows itself, and a message."""
        if not self.round_trips:
            return min(self.config.credit_start, self.message) if self.ceiling < math.inf else self.config.credit_start
        return min(int(2 * self.bandwidth * self.round_trip) + self.message, self.config.credit_max)

    def room(self, nbytes: int) -> bool:
        """Whether so many bytes may leave now; an idle link always takes a block."""
        held = self.full_until or (self.stale and self.parcels)
        return not held and self.under_way + nbytes <= self.credit

    @property
    def idle(self) -> bool:
        """Nothing is under way, and the connection has room: any one message may leave, however long."""
        return not self.full_until and not self.parcels

    def retry(self, now: float) -> bool:
        """Time passed: a connection that had no room may have some again; whether it is still held for full."""
        if self.full_until <= now:
            self.full_until = 0.0
        return self.full_until > 0

    def leave(self, exchange: int, nbytes: int, now: float) -> None:
        self.parcels[exchange] = Parcel(exchange, nbytes, now, self.delivered, alone=not self.parcels)
        self.under_way += nbytes

    def receipt(self, exchange: int, now: float) -> Parcel | None:
        """The receipt of a parcel came; None if it was not (or no longer) under way."""
        parcel = self.unsend(exchange)
        if parcel is None:
            return None
        self.delivered += parcel.nbytes
        elapsed = max(now - parcel.sent, 1e-6)
        self._delivers((self.delivered - parcel.delivered) / elapsed, now)
        if parcel.alone:
            self.round_trips.append(elapsed)
            self.round_trip = min(self.round_trips)
            self.measured = now
        self.waits.append(max(elapsed - self.round_trip, 0.0))
        self.stale = now > self.measured + STALE
        return parcel

    def _delivers(self, rate: float, now: float) -> None:
        """One more delivery rate: it stands beside those of the same second, or a few others where there are none."""
        while len(self.rated) >= FEW and self.rated[0] < now - LATELY:
            self.rated.popleft()
            self.rates.popleft()
        self.rates.append(rate)
        self.rated.append(now)
        self.bandwidth = max(self.rates)

    def unsend(self, exchange: int) -> Parcel | None:
        """Take back a parcel that never left, or that nobody waits for any more."""
        parcel = self.parcels.pop(exchange, None)
        if parcel is not None:
            self.under_way -= parcel.nbytes
            self.full_until = 0.0
        return parcel

    def expected(self) -> float:
        """Seconds that the bytes under way should take: round trip, and bytes over bandwidth."""
        return self.round_trip + (self.under_way / self.bandwidth if self.rates else 0.0)

    @property
    def overdue(self) -> float:
        """When the oldest parcel will be out for twice what the link predicts."""
        oldest = next(iter(self.parcels.values()), None)
        return oldest.sent + max(self.config.floor, 2 * self.expected()) if oldest is not None else math.inf

    def paused(self, now: float) -> bool:
        """Whether a parcel is overdue: nothing new until it is answered."""
        return now >= self.overdue
