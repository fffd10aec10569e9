"""The real network: two ROUTERs bound, a DEALER for each address dialled.

Control and data never share a connection: a probe must not queue behind a model. No routing ids are set and no session
lives in a connection, so a node that restarts, or that can only dial out, just works. With a secret every connection
is CURVE, and only who derived the client key from the same secret is let in.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import zmq

from p2p.config import NetConfig
from p2p.errors import JoinError, ListenError, SecretError
from p2p.net.address import WILDCARDS, Address, outward_host, parse_address
from p2p.net.channel import Channel
from p2p.net.connection import Connection
from p2p.net.fork import close_inherited
from p2p.net.keys import client_pair
from p2p.net.options import LIMITS, dealer_options, router_options
from p2p.net.transport import Receiver, Route, Sent
from p2p.net.zap import Doorkeeper

logger = logging.getLogger("starlings.net")

Socket = zmq.Socket[bytes]
MAX_SOCKETS = 65536  # libzmq's own limit, 1023, is too low for a large swarm


class Arrival(NamedTuple):
    """The route back to whoever sent something to one of our ROUTERs."""

    router: str  # control or data
    peer: bytes  # the connection's routing id, given by libzmq


class ZmqTransport:
    """`Transport` over ZeroMQ; see the protocol for what each call does.

    `listen` is ``tcp://host:port``: control there, data on the next port; both random where the port is 0. `advertise`
    is the host (or ``tcp://host:port`` where ports are forwarded) that others dial, if it is not the one bound. Without a
    `secret` only loopback addresses are bound and dialled, unless `insecure` states otherwise on purpose.

    Raises `JoinError` for what is no address, `SecretError` where a secret is needed.
    """

    def __init__(
        self,
        listen: str = "tcp://*:0",
        *,
        advertise: str | None = None,
        secret: bytes | None = None,
        insecure: bool = False,
        config: NetConfig | None = None,
    ) -> None:
        self._listen = parse_address(listen)
        self._advertise = _parse_advertised(advertise)
        self._secret = secret
        self._insecure = insecure
        self._config = config or NetConfig()
        self._require_secret(self._listen, "listen on")
        self.control = ""
        self.data = ""
        self.malformed = 0
        """Messages that were dropped unread: not one header and at most one payload."""
        self._context: zmq.Context[Socket] | None = None
        self._doorkeeper: Doorkeeper | None = None
        self._routers: dict[str, Channel] = {}
        self._ports: list[int] = []
        self._dialled: dict[str, Connection] = {}

    @property
    def refused(self) -> int:
        """Connections refused for their key."""
        return self._doorkeeper.refused if self._doorkeeper else 0

    async def start(self, receiver: Receiver) -> None:
        """Bind and begin to deliver; see `Transport.start`."""
        loop = asyncio.get_running_loop()
        host = await self._bindable_host(loop)
        self._receiver = receiver
        self._context = context = zmq.Context()
        context.set(zmq.MAX_SOCKETS, min(MAX_SOCKETS, int(context.get(zmq.SOCKET_LIMIT))))
        try:
            if self._secret:
                self._doorkeeper = Doorkeeper(loop, context, client_pair(self._secret).public)
            self._ports = [self._bind(loop, name, host, offset) for offset, name in enumerate(LIMITS)]
        except (ListenError, zmq.ZMQError):
            await self.close()
            raise
        self.control, self.data = (str(address) for address in self._advertised(host))

    def dial(self, address: str) -> Route:
        """See `Transport.dial`; raises `JoinError` for what is no address, `SecretError` for a far one without a secret."""
        connection = self._dialled.get(address)
        if connection is None:
            target = parse_address(address)
            if target.host in WILDCARDS or target.port == 0:
                raise JoinError(f"{address} can't be dialled: a wildcard is for listening only")
            self._require_secret(target, "dial")
            connection = self._dialled[address] = Connection(
                str(target),
                self._dealer,
                self._answered,
                self._lost,
                secured=self._secret is not None,
                revive=self._config.reconnect_max,
            )
        return connection

    def send(self, route: Route, header: bytes, payload: memoryview | None = None) -> Sent | None:
        """See `Transport.send`. Payloads under 64 KiB are copied, which is faster."""
        if isinstance(route, Connection):
            return route.send((header,), payload)
        if isinstance(route, Arrival) and route.router in self._routers:
            return self._routers[route.router].send((route.peer, header), payload)
        return None

    def forget(self, route: Route) -> None:
        """See `Transport.forget`."""
        if isinstance(route, Connection):
            route.close()
            self._dialled = {address: kept for address, kept in self._dialled.items() if kept is not route}

    def face(self, peer: str) -> None:
        """Advertise the interface that leads to `peer` (an address), where all are listened on and none was stated."""
        if self._listen.host in WILDCARDS and not self._advertise:
            host = outward_host(parse_address(peer).host)
            self.control, self.data = (str(Address(host, port)) for port in self._ports)

    async def close(self) -> None:
        """See `Transport.close`."""
        for connection in self._dialled.values():
            connection.close()
        for channel in (*self._routers.values(), *((self._doorkeeper,) if self._doorkeeper else ())):
            channel.close()
        self._dialled, self._routers = {}, {}
        context, self._context = self._context, None
        if context:
            await _terminate(context, self._config.close_timeout)

    def abandon_after_fork(self) -> None:
        """For the child of a fork: closes the inherited connections, so that only the parent holds them.

        libzmq isn't touched (its threads didn't come along), and no call on this transport may follow.
        """
        close_inherited(self._ports, [parse_address(address) for address in self._dialled])

    # --- inside ------------------------------------------------------------------------------------------------

    def _require_secret(self, address: Address, verb: str) -> None:
        if self._secret is None and not self._insecure and not address.loopback:
            raise SecretError(
                f"can't {verb} {address} without a secret: only loopback addresses (tcp://127.0.0.1:port) may be open to all;"
                " give the swarm's secret, or state --insecure"
            )

    async def _bindable_host(self, loop: asyncio.AbstractEventLoop) -> str:
        """libzmq binds to numbers only."""
        if self._listen.numeric:
            return self._listen.host
        try:
            found = await loop.getaddrinfo(self._listen.host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ListenError(f"can't listen on {self._listen}: {error.strerror or error}") from None
        return str(found[0][4][0])

    def _bind(self, loop: asyncio.AbstractEventLoop, name: str, host: str, offset: int) -> int:
        """Bind one ROUTER, and the port that it has."""
        port = self._listen.port + offset if self._listen.port else 0
        try:
            router = self._socket(zmq.ROUTER, router_options(name, self._config, self._secret))
            self._routers[name] = Channel(loop, router, partial(self._arrived, name))
            router.bind(str(Address(host, port)))
        except zmq.ZMQError as error:
            raise ListenError(_why_not(Address(host, port), name, error)) from None
        return int(router.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    def _advertised(self, host: str) -> list[Address]:
        if self._advertise:
            first = self._advertise.port
            return [Address(self._advertise.host, first + i if first else port) for i, port in enumerate(self._ports)]
        return [Address(outward_host() if host in WILDCARDS else host, port) for port in self._ports]

    def _dealer(self) -> Socket:
        return self._socket(zmq.DEALER, dealer_options(self._config, self._secret))

    def _socket(self, kind: int, options: dict[int, int | bytes]) -> Socket:
        if self._context is None:
            raise zmq.ContextTerminated
        made = self._context.socket(kind)
        for option, value in options.items():
            made.setsockopt(option, value)
        return made

    def _arrived(self, router: str, frames: list[zmq.Frame]) -> None:
        peer, *message = frames
        self._deliver(Arrival(router, peer.bytes), message)

    def _answered(self, connection: Connection, frames: list[zmq.Frame]) -> None:
        self._deliver(connection, frames)

    def _lost(self, connection: Connection, reason: str) -> None:
        self._receiver.lost(connection, reason)

    def _deliver(self, route: Route, frames: list[zmq.Frame]) -> None:
        if not 1 <= len(frames) <= 2:
            self.malformed += 1
            return
        payload = memoryview(frames[1].buffer).toreadonly() if len(frames) == 2 else None  # keeps its frame alive
        self._receiver.received(route, frames[0].bytes, payload)


def _why_not(address: Address, name: str, error: zmq.ZMQError) -> str:
    reasons = {
        errno.EADDRINUSE: "the port is in use; choose another, or port 0 for any",
        errno.EADDRNOTAVAIL: "not an address of this machine",
        errno.ENODEV: "not an address of this machine",
        errno.EINVAL: "not a port: data listens on the next one",
        errno.EACCES: "not permitted; choose a port above 1023",
    }
    return f"can't listen on {address} ({name}): {reasons.get(error.errno or 0, error.strerror)}"


def _parse_advertised(text: str | None) -> Address | None:
    """A host alone, or a whole address."""
    if text is None:
        return None
    found = parse_address(text if text.startswith("tcp://") else str(Address(text, 0)))
    if found.host in WILDCARDS:
        raise JoinError(f"{text} can't be advertised: others need a host that they can dial")
    return found


async def _terminate(context: zmq.Context[Socket], patience: float) -> None:
    """libzmq's shutdown blocks: it gets a thread, and `patience` seconds."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def terminate() -> None:
        context.term()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(done.set)

    thread = threading.Thread(target=terminate, name="starlings-close", daemon=True)
    thread.start()
    try:
        await asyncio.wait_for(done.wait(), patience)
        thread.join()
    except TimeoutError:
        logger.warning("ZeroMQ did not shut down within %g s: its threads stay until the process ends", patience)
