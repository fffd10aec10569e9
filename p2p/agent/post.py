"""Messages out: who is reached how. The map from node to connection is renewed by every arrival; no session lives in one."""

from __future__ import annotations

from collections.abc import Callable

from p2p.errors import JoinError
from p2p.net import wire
from p2p.net.messages import Answer, Ask, BlocksRequest, Envelope, Message, Push, Reask, Record, Settled, SnapshotBlocks
from p2p.net.transport import Route, Sent, Transport

DATA = frozenset({Ask, Reask, Answer, Push, Settled, BlocksRequest, SnapshotBlocks})
"""Messages of the data connection; all others are control, where nothing queues behind a model."""


class Post:
    """Encodes and sends. `envelope()` is what each header begins with now; `record(node)` a node's signed word, if known."""

    def __init__(self, transport: Transport, envelope: Callable[[], Envelope], record: Callable[[str], Record | None]) -> None:
        self.transport = transport
        self.envelope = envelope
        self.record = record
        self.sent = 0  # bytes, headers included
        self.received = 0
        self._dialled: dict[Route, str] = {}
        self._back: dict[tuple[str, bool], Route] = {}  # newest connection that a node opened to here, per channel

    def came(self, node: str, message: Message, route: Route, nbytes: int) -> None:
        """A frame of this node arrived by `route`."""
        self.received += nbytes
        self._back[node, type(message) in DATA] = route

    def hang_up(self, node: str) -> None:
        """The node is gone: close what was dialled."""
        for route in [r for r, owner in self._dialled.items() if owner == node]:
            self.transport.forget(route)
            del self._dialled[route]
        for data in (False, True):
            self._back.pop((node, data), None)

    def send(self, node: str, message: Message, payload: memoryview | None = None) -> Sent | None:
        """Send to a node; None where there is no room, or no way to it."""
        route = self.route(node, type(message) in DATA)
        return None if route is None else self.answer(route, message, payload)

    def answer(self, route: Route, message: Message, payload: memoryview | None = None) -> Sent | None:
        """Send by the connection that a request took."""
        header = wire.encode(self.envelope(), message)
        sent = self.transport.send(route, header, payload)
        if sent is not None:
            self.sent += len(header) + (payload.nbytes if payload is not None else 0)
        return sent

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
