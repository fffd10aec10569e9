"""Messages out: who is reached how. The map from node to connection is renewed by every arrival; no session lives in one."""

from __future__ import annotations

from collections.abc import Callable

from p2p.agent.limits import Limits
from p2p.agent.pacer import Bucket, Pacer, Queued
from p2p.errors import JoinError
from p2p.net import wire
from p2p.net.messages import Answer, Ask, BlocksRequest, Envelope, Message, Push, Reask, Record, Settled, SnapshotBlocks
from p2p.net.transport import Route, Sent, Transport

DATA = frozenset({Ask, Reask, Answer, Push, Settled, BlocksRequest, SnapshotBlocks})
"""Messages of the data connection; all others are control, where nothing queues behind a model."""


OWNERS = 16384
"""Connections of which is known who spoke by them; the oldest give way."""
BACKLOG = 0.5
"""Seconds of what a limit allows that may wait for one partner before nothing more is pushed to it."""


class Waiting:
    """A message that a limit holds back, or has held back."""

    __slots__ = ("header", "payload", "route", "sent")

    def __init__(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        self.route = route
        self.header = header
        self.payload = payload
        self.sent: Sent | None = None

    @property
    def done(self) -> bool:
        return self.sent is not None and self.sent.done


class Gone:
    """Of what will never be sent."""

    done = True


class Post:
    """Encodes and sends. `envelope()` is what each header begins with now; `record(node)` a node's signed word, if known.

    Where there are limits, messages of the data connection wait for their turn: `arm` is called when one does, and
    `release` must be at `wake`.
    """

    def __init__(
        self,
        transport: Transport,
        envelope: Callable[[], Envelope],
        record: Callable[[str], Record | None],
        limits: Limits,
        clock: Callable[[], float],
        arm: Callable[[], None],
    ) -> None:
        self.transport = transport
        self.envelope = envelope
        self.record = record
        self.limits = limits
        self._clock, self._arm = clock, arm
        self._pacer = Pacer(self._leave)
        self.sent = 0  # bytes, headers included
        self.received = 0
        self._dialled: dict[Route, str] = {}
        self._back: dict[tuple[str, bool], Route] = {}  # newest connection that a node opened to here, per channel
        self._owners: dict[Route, str] = {}  # who spoke last by a connection

    def came(self, node: str, message: Message, route: Route, nbytes: int) -> None:
        """A frame of this node arrived by `route`."""
        self.received += nbytes
        if type(message) is SnapshotBlocks:  # the one thing that comes without as much going out
            self.limits.downlink.take(nbytes, self._clock())
        self._back[node, type(message) in DATA] = route
        if route not in self._owners:
            self._owners[route] = node
            if len(self._owners) > OWNERS:
                del self._owners[next(iter(self._owners))]

    def hang_up(self, node: str) -> None:
        """The node is gone: close what was dialled."""
        for route in [r for r, owner in self._dialled.items() if owner == node]:
            self.transport.forget(route)
            del self._dialled[route]
        for data in (False, True):
            self._back.pop((node, data), None)
        self._owners = {route: owner for route, owner in self._owners.items() if owner != node}
        for waiting in self._pacer.drop(node):
            waiting.sent = Gone()

    def send(self, node: str, message: Message, payload: memoryview | None = None) -> Sent | None:
        """Send to a node; None where there is no room, or no way to it."""
        route = self.route(node, type(message) in DATA)
        if route is None or (type(message) is Push and self._backlogged(node)):
            return None
        return self.answer(route, message, payload)

    def answer(self, route: Route, message: Message, payload: memoryview | None = None) -> Sent | None:
        """Send by the connection that a request took."""
        header = wire.encode(self.envelope(), message)
        limited = self.limits.active and type(message) in DATA
        sent = self._queue(route, header, payload) if limited else self.transport.send(route, header, payload)
        if sent is not None:
            self.sent += len(header) + (payload.nbytes if payload is not None else 0)
        return sent

    @property
    def wake(self) -> float:
        """When `release` has something to send."""
        return self._pacer.wake

    def release(self, now: float) -> None:
        """Send what limits held back until now."""
        self._pacer.release(now)

    def _queue(self, route: Route, header: bytes, payload: memoryview | None) -> Waiting:
        node = self.owner(route) or self._owners.get(route) or ""
        nbytes = len(header) + (payload.nbytes if payload is not None else 0)
        waiting = Waiting(route, header, payload)
        self._pacer.put(node, Queued(waiting, nbytes, self._buckets(node)), self._clock())
        if waiting.sent is None:
            self._arm()
        return waiting

    @property
    def limited(self) -> bool:
        """Whether the user has set any limit."""
        return self.limits.active

    def clear(self, node: str, now: float) -> bool:
        """Whether the limits let a message to a node leave now."""
        return not self._pacer.waiting(node) and self.opens(node) <= now

    def opens(self, node: str) -> float:
        """When the limits let the next message to a node leave."""
        return max(bucket.free for bucket in self._buckets(node))

    def rate(self, node: str) -> float:
        """Bytes a second that the limits allow to a node."""
        return min(bucket.rate for bucket in self._buckets(node))

    def _buckets(self, node: str) -> tuple[Bucket, ...]:
        record = self.record(node)
        return self.limits.to(record.site if record is not None else "")

    def _leave(self, waiting: Waiting) -> bool:
        waiting.sent = self.transport.send(waiting.route, waiting.header, waiting.payload)
        return waiting.sent is not None

    def _backlogged(self, node: str) -> bool:
        """Whether what waits for a node already takes long by the limits alone."""
        return self._pacer.waiting(node) > BACKLOG * self.rate(node)

    def owner(self, route: Route) -> str | None:
        """Whose dialled connection this is."""
        return self._dialled.get(route)

    def route(self, node: str, data: bool = False) -> Route | None:
        """The own connection, or for a node that can only dial out, the one that it opened."""
        record = self.record(node)
        if record is None or record.dial_only:
            return self._back.get((node, data))
        try:
            route = self.transport.dial(record.data if data else record.control)
        except JoinError:  # its record says so, and it may say anything
            return self._back.get((node, data))
        self._dialled[route] = node
        return route
