"""A network in memory: hosts that reach each other over simulated lines; `MemoryTransport` is one host's end of it.

By default messages arrive at once and nothing is lost: the smallest transport there is, under any one event loop. Under a
virtual clock it is the world in which swarms are simulated. A connection is a pair of ordered lanes, as a TCP connection is:
what is sent during a cut arrives after it, or the connection breaks after `SILENCE` and all that was under way is gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from itertools import count
from typing import TypeVarTuple

from p2p.errors import ListenError, WireError
from p2p.net.lane import Lane, Message
from p2p.net.physics import Host, Link, Path, Underlay
from p2p.net.transport import Receiver, Route
from p2p.net.wire import HEADER_BYTES, PAYLOAD_BYTES

Ts = TypeVarTuple("Ts")

CONTROL_PORT, DATA_PORT = 7000, 7001
ROOM = {CONTROL_PORT: 256, DATA_PORT: 64}
"""Messages under way on one lane at most, by port."""
SILENCE = 10.0
"""Seconds without a sign of life after which a connection breaks: the real transport's heartbeat."""
CONNECT_TIMEOUT = 5.0
"""Seconds until dialling into a cut is given up."""
BACK_OFF, BACK_OFF_MAX = 0.2, 10.0
"""Seconds between attempts to dial again; doubles."""


class Connection:
    """A dialled connection: opened by the first message, redialled with back-off whenever it is lost, until forgotten."""

    def __init__(self, near: MemoryTransport, address: str, route: Route) -> None:
        self.near = near
        self.address = address
        self.route = route
        self.room = ROOM[DATA_PORT if address.endswith(f":{DATA_PORT}") else CONTROL_PORT]
        self.waiting: deque[Message] = deque()
        self.out: Lane | None = None
        self.back: Lane | None = None
        self.far: MemoryTransport | None = None  # while it is open
        self.dialling = False
        self.forgotten = False
        self.back_off = 0.0

    def send(self, message: Message) -> bool:
        """From the side that dialled."""
        queue = self.waiting if self.out is None else self.out.flight
        if len(queue) >= self.room:
            return False
        if self.out is not None:
            self.out.launch(message)
            return True
        self.waiting.append(message)
        if not self.dialling:
            self.dial()
        return True

    def answer(self, message: Message) -> bool:
        """From the side that was dialled."""
        if self.back is None or len(self.back.flight) >= self.room:
            return False
        self.back.launch(message)
        return True

    def dial(self) -> None:
        """Attempt to open: takes a round trip, or `CONNECT_TIMEOUT` into a cut."""
        if self.forgotten:
            return
        self.dialling = True
        far = self.near.network.listening.get(self.address)
        if far is None:
            self.near.later(0.0, self._lost, "connection refused")
            return
        path = self._path(far)
        self.near.later(CONNECT_TIMEOUT if path.cut_since is not None else 2 * path.latency, self._dialled)

    def _dialled(self) -> None:
        far = self.near.network.listening.get(self.address)
        if self.forgotten:
            return
        if far is None:
            self._lost("connection refused")
        elif self._path(far).cut_since is not None:
            self._lost("timed out")
        else:
            self._open(far)

    def _path(self, far: MemoryTransport) -> Path:
        return self.near.network.underlay.path(self.near.host, far.host)

    def _open(self, far: MemoryTransport) -> None:
        self.dialling, self.back_off = False, 0.0
        self.far = far
        urgent = self.room == ROOM[CONTROL_PORT]
        self.out = Lane(self._path(far), far, far.admit(self), urgent)
        self.back = Lane(self.near.network.underlay.path(far.host, self.near.host), self.near, self.route, urgent)
        while self.waiting:
            self.out.launch(self.waiting.popleft())

    def lose(self, reason: str, *, drain: Lane | None = None) -> None:
        """An open connection breaks; what is under way on `drain` still arrives. The dialler hears of it a little later."""
        if self.out is None or self.back is None or self.far is None:
            return
        self.far.dismiss(self.out.route)
        latency = self.back.path.latency
        for lane in (self.out, self.back):
            if lane is not drain:
                lane.kill()
        self.out = self.back = self.far = None
        if not self.forgotten:
            self.dialling = True
            self.near.later(latency, self._lost, reason)

    def _lost(self, reason: str) -> None:
        if self.forgotten:
            return
        self.back_off = min(max(2 * self.back_off, BACK_OFF), BACK_OFF_MAX)
        self.near.later(self.back_off, self.dial)
        self.near.report(self.route, reason)

    @property
    def cut_since(self) -> float | None:
        return None if self.out is None else self.out.path.cut_since

    def listen_in(self) -> None:
        """`SILENCE` after a cut: has anything come through since?"""
        if self.cut_since is not None and self.cut_since + SILENCE <= self.near.loop.time():
            self.lose("timed out")

    def touches(self, name: str) -> bool:
        return self.far is not None and name in (self.near.host.name, self.far.host.name)

    def resume(self) -> None:
        """A cut has ended, perhaps this one's."""
        for lane in (self.out, self.back):
            if lane is not None and lane.path.cut_since is None:
                lane.resume()

    def forget(self, *, drain: bool) -> None:
        """Closed for good by the side that dialled."""
        self.forgotten = True
        for message in self.waiting:
            message.done = True
        self.waiting.clear()
        self.lose("closed", drain=self.out if drain else None)


class MemoryTransport:
    """One host's transport on a `Network`; see `Transport`. Its addresses are `tcp://<host>:7000` and `:7001`."""

    def __init__(self, network: Network, host: Host) -> None:
        self.network = network
        self.host = host
        self.control = _address(host.name, CONTROL_PORT)
        self.data = _address(host.name, DATA_PORT)
        self.sent = self.received = 0  # bytes, payloads scaled
        self._receiver: Receiver | None = None
        self._dialled: dict[str, Connection] = {}  # by address
        self._mine: dict[Route, Connection] = {}
        self._theirs: dict[Route, Connection] = {}

    async def start(self, receiver: Receiver) -> None:
        """Begin to deliver; callbacks run in the context of whoever called this."""
        self.network.listen(self)
        self.loop = asyncio.get_running_loop()
        self.context = copy_context()
        self._receiver = receiver

    def dial(self, address: str) -> Route:
        connection = self._dialled.get(address)
        if connection is None:
            connection = self._dialled[address] = Connection(self, address, self.network.new_route())
            self._mine[connection.route] = connection
        return connection.route

    def send(self, route: Route, header: bytes, payload: memoryview | None = None) -> Message | None:
        """Queue one message; the payload is read when it is delivered."""
        if len(header) > HEADER_BYTES or (payload is not None and payload.nbytes > PAYLOAD_BYTES):
            raise WireError("size", f"{len(header)} bytes of header, {payload.nbytes if payload else 0} of payload")
        message = Message(header, payload, self.network.scale)
        mine = self._mine.get(route)
        if mine is not None:
            accepted = mine.send(message)
        else:
            theirs = self._theirs.get(route)
            accepted = theirs is not None and theirs.answer(message)
        if not accepted:
            return None
        self.sent += message.nbytes
        return message

    def forget(self, route: Route) -> None:
        connection = self._mine.pop(route, None)
        if connection is not None:
            del self._dialled[connection.address]
            connection.forget(drain=False)

    async def close(self) -> None:
        self.shut()

    def shut(self) -> None:
        """Close now. What was sent on open connections still arrives, as from a kernel's buffers."""
        self._receiver = None
        self.network.unlisten(self)
        for connection in [*self._mine.values()]:
            connection.forget(drain=True)
        for connection in [*self._theirs.values()]:
            connection.lose("closed", drain=connection.back)
        self._mine.clear()
        self._dialled.clear()

    # --- for connections and lanes ---

    @property
    def connections(self) -> list[Connection]:
        """Those dialled from here."""
        return [*self._mine.values()]

    def admit(self, connection: Connection) -> Route:
        """A connection that another host has opened to here gets a name here."""
        route = self.network.new_route()
        self._theirs[route] = connection
        return route

    def dismiss(self, route: Route) -> None:
        self._theirs.pop(route, None)

    def deliver(self, route: Route, header: bytes, payload: bytes | None) -> None:
        if self._receiver is not None:
            self.received += len(header) + (len(payload) if payload is not None else 0)
            self._receiver.received(route, header, memoryview(payload) if payload is not None else None)

    def report(self, route: Route, reason: str) -> None:
        if self._receiver is not None:
            self._receiver.lost(route, reason)

    def later(self, delay: float, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        self.loop.call_later(delay, callback, *args, context=self.context)


class Network:
    """Transports that reach each other over an `Underlay`, all on one event loop; `scale` multiplies payloads' sizes."""

    def __init__(self, underlay: Underlay | None = None, *, scale: float = 1.0) -> None:
        self.underlay = underlay or Underlay()
        self.scale = scale
        self.listening: dict[str, MemoryTransport] = {}  # by address
        self._routes = count(1)

    def transport(self, name: str, site: str = "") -> MemoryTransport:
        """The transport of host `name`; one that was closed or crashed may be followed by another."""
        return MemoryTransport(self, self.underlay.host(name, site))

    def cut(self, *names: str) -> None:
        """Nothing passes between the named hosts and sites, and all others, until `heal` with the same names."""
        self.underlay.cut(frozenset(names))
        loop = asyncio.get_running_loop()
        for connection in self._connections():
            if connection.cut_since == loop.time():
                loop.call_at(loop.time() + SILENCE, connection.listen_in, context=Context())

    def heal(self, *names: str) -> None:
        self.underlay.heal(frozenset(names))
        for connection in self._connections():
            connection.resume()

    def slow(self, link: Link, factor: float) -> None:
        """Multiply the latency and divide the bandwidth of a line as it was given; 1 restores it."""
        self.underlay.slow(link, factor)

    def corrupt(self, link: Link, share: float) -> None:
        """Flip one bit in so many (0 to 1) of the messages over a line."""
        self.underlay.corrupt(link, share)

    def disconnect(self, name: str) -> None:
        """Break a host's open connections, with all that is under way on them; they are dialled again."""
        for connection in self._connections():
            if connection.touches(name):
                connection.lose("closed")

    def crash(self, name: str) -> None:
        """Host `name`'s process is gone: its ports are closed and its connections break."""
        transport = self.listening.get(_address(name, CONTROL_PORT))
        if transport is not None:
            transport.shut()

    # --- for transports and connections ---

    def listen(self, transport: MemoryTransport) -> None:
        if transport.control in self.listening:
            raise ListenError(
                f"{transport.control} is in use: close the transport that listens there, or take another host name"
            )
        self.listening[transport.control] = self.listening[transport.data] = transport

    def unlisten(self, transport: MemoryTransport) -> None:
        for address in (transport.control, transport.data):
            if self.listening.get(address) is transport:
                del self.listening[address]

    def new_route(self) -> int:
        return next(self._routes)

    def _connections(self) -> list[Connection]:
        transports = dict.fromkeys(self.listening.values())
        return [connection for transport in transports for connection in transport.connections]


def _address(name: str, port: int) -> str:
    return f"tcp://{name}:{port}"
