"""What a node keeps about one neighbour: bytes under way, measured round trip and bandwidth, and the credit that follows.

Measured from the node's own acknowledgements, without probing traffic: each receipt gives one round trip and one
delivery rate (bytes delivered between its sending and its receipt, over that time; Cardwell et al., "BBR", 2016).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from p2p.config import ExchangeConfig

WINDOW = 16  # receipts that the measurements look back on


@dataclass(slots=True)
class Parcel:
    """One message under way whose receipt is awaited."""

    exchange: int
    nbytes: int
    sent: float
    delivered: int  # bytes that the link had delivered when this one left


@dataclass(slots=True)
class Link:
    """One neighbour. Times in seconds, sizes in bytes."""

    config: ExchangeConfig
    sent: int = 0
    received: int = 0
    delivered: int = 0
    under_way: int = 0
    parcels: dict[int, Parcel] = field(default_factory=dict)
    round_trips: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    full_until: float = 0.0  # the transport had no room; tried again then, or after a receipt

    @property
    def round_trip(self) -> float:
        """The least recent round trip, which holds the least waiting; 0 before the first receipt."""
        return min(self.round_trips, default=0.0)

    @property
    def bandwidth(self) -> float:
        """The best recent delivery rate; 0 before the first receipt."""
        return max(self.rates, default=0.0)

    @property
    def credit(self) -> int:
        """Bytes that may be under way: twice bandwidth x round trip, so that a faster link shows itself, and a message."""
        if not self.rates:
            return self.config.credit_start
        room = int(2 * self.bandwidth * self.round_trip) + self.config.block_bytes
        return min(max(room, self.config.block_bytes), self.config.credit_max)

    def room(self, nbytes: int) -> bool:
        """Whether so many bytes may leave now; an idle link always takes a block."""
        return not self.full_until and self.under_way + nbytes <= self.credit

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
        self.parcels[exchange] = Parcel(exchange, nbytes, now, self.delivered)
        self.under_way += nbytes

    def receipt(self, exchange: int, now: float) -> Parcel | None:
        """The receipt of a parcel came; None if it was not (or no longer) under way."""
        parcel = self.unsend(exchange)
        if parcel is None:
            return None
        self.delivered += parcel.nbytes
        elapsed = max(now - parcel.sent, 1e-6)
        self.round_trips.append(elapsed)
        self.rates.append((self.delivered - parcel.delivered) / elapsed)
        return parcel

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
