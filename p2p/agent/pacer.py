"""The pacer: what may leave now, where the user has set limits. A machine: bytes and time in, messages out.

A limit is a token bucket in its virtual scheduling form (ITU-T I.371, GCRA): after each message it is closed for as long as the
message takes at its rate, so that over any second no more passes than the rate, SLACK of it, and one message. What has to wait
is served by start-time fair queueing (Goyal, Vin and Cheng 1996): partners that share a limit have equal shares of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

SLACK = 0.02
"""Seconds by which a late timer may be made good."""
RETRY = 0.01
"""Seconds until a message for which the connection had no room is tried again."""


@dataclass(slots=True)
class Bucket:
    """One limit, in bytes a second."""

    rate: float
    free: float = 0.0  # when the next message may pass

    def take(self, nbytes: int, now: float) -> None:
        self.free = max(self.free, now - SLACK) + nbytes / self.rate


@dataclass(slots=True)
class Queued(Generic[T]):
    """A message that waits."""

    item: T
    nbytes: int
    limits: tuple[Bucket, ...]  # that it counts against

    @property
    def free(self) -> float:
        """When it may pass."""
        return max((bucket.free for bucket in self.limits), default=0.0)


@dataclass(slots=True)
class _Flow(Generic[T]):
    """What goes to one partner, in order. `tag` is the byte count at which its next message would begin if all took turns."""

    queue: deque[Queued[T]] = field(default_factory=deque)
    nbytes: int = 0
    tag: float = 0.0
    again: float = 0.0  # its connection had no room; tried again then

    @property
    def free(self) -> float:
        return max(self.queue[0].free, self.again) if self.queue else math.inf


class Pacer(Generic[T]):
    """All flows of one node. `send` performs, and returns whether there was room."""

    def __init__(self, send: Callable[[T], bool]) -> None:
        self._send = send
        self._flows: dict[str, _Flow[T]] = {}
        self._begun = 0.0  # tag of the message that left last

    def put(self, flow: str, queued: Queued[T], now: float) -> None:
        """Send now, or in turn."""
        found = self._flows.setdefault(flow, _Flow())
        if not found.queue:
            found.tag = max(found.tag, self._begun)
        found.queue.append(queued)
        found.nbytes += queued.nbytes
        self.release(now)

    def waiting(self, flow: str) -> int:
        """Bytes that wait in a flow."""
        found = self._flows.get(flow)
        return found.nbytes if found is not None else 0

    def drop(self, flow: str) -> list[T]:
        """The partner is gone; what waited for it."""
        found = self._flows.pop(flow, None)
        return [queued.item for queued in found.queue] if found is not None else []

    def release(self, now: float) -> None:
        """Send what may leave."""
        while (flow := self._next(now)) is not None:
            queued = flow.queue[0]
            if not self._send(queued.item):
                flow.again = now + RETRY
                continue
            flow.queue.popleft()
            flow.nbytes -= queued.nbytes
            self._begun = max(flow.tag, self._begun)
            flow.tag += queued.nbytes
            for bucket in queued.limits:
                bucket.take(queued.nbytes, now)

    @property
    def wake(self) -> float:
        """When `release` has something to do next."""
        return min((flow.free for flow in self._flows.values()), default=math.inf)

    def _next(self, now: float) -> _Flow[T] | None:
        """The first in turn of those that may send."""
        ready = [flow for flow in self._flows.values() if flow.free <= now]
        return min(ready, key=lambda flow: flow.tag, default=None)
