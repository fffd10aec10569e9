"""The real network on loopback: what arrives, what is refused and why, and that nothing is left behind."""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
import zmq

from p2p.config import TEST
from p2p.net.transport import Route, Transport
from p2p.net.wire import HEADER_BYTES, PAYLOAD_BYTES
from p2p.net.zeromq import ZmqTransport

SECRET, OTHER = bytes(range(32)), bytes(32)
MIB = 1024 * 1024
T = TypeVar("T")
Message = tuple[Route, bytes, memoryview | None]


@pytest.fixture(scope="module", autouse=True)
def collector() -> None:
    """pyzmq keeps one thread for all zero-copy sends of a process; it is started before leaks are counted."""
    zmq.Frame(bytes(MIB), copy=False)


class Inbox:
    """A receiver that keeps what it is told."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.losses: asyncio.Queue[tuple[Route, str]] = asyncio.Queue()

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        self.messages.put_nowait((route, header, payload))

    def lost(self, route: Route, reason: str) -> None:
        self.losses.put_nowait((route, reason))


@asynccontextmanager
async def node(
    secret: bytes | None = SECRET, listen: str = "tcp://127.0.0.1:0", **more: Any
) -> AsyncIterator[tuple[ZmqTransport, Inbox]]:
    transport, inbox = ZmqTransport(listen, secret=secret, config=TEST.net, **more), Inbox()
    await transport.start(inbox)
    try:
        yield transport, inbox
    finally:
        await transport.close()


async def soon(waiting: Awaitable[T], deadline: float = 15.0) -> T:
    return await asyncio.wait_for(waiting, deadline)


async def until(condition: Callable[[], bool], deadline: float = 15.0) -> None:
    async with asyncio.timeout(deadline):
        while not condition():
            await asyncio.sleep(0.005)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


def is_transport(transport: Transport) -> Transport:
    return transport


@pytest.mark.parametrize("secret", [SECRET, None], ids=["curve", "plain"])
@pytest.mark.parametrize("channel", ["control", "data"])
@pytest.mark.parametrize("listen", ["tcp://127.0.0.1:0", "tcp://localhost:0", "tcp://[::1]:0"])
def test_an_answer_takes_the_connection_back(secret: bytes | None, channel: str, listen: str) -> None:
    async def main() -> None:
        async with node(secret, listen) as (here, inbox), node(secret) as (_, _), node(secret, listen) as (there, their_inbox):
            route = here.dial(getattr(there, channel))
            assert here.dial(getattr(there, channel)) is route
            for text in (b"one", b"two"):
                assert here.send(route, text)
                back, header, payload = await soon(their_inbox.messages.get())
                assert (header, payload) == (text, None)
                assert there.send(back, b"re: " + text)
                assert await soon(inbox.messages.get()) == (route, b"re: " + text, None)
            assert hash(back) == hash(back)

    run(main)


def test_the_seam_is_kept() -> None:
    assert is_transport(ZmqTransport("tcp://127.0.0.1:0"))


def test_arrivals_from_one_connection_have_one_route() -> None:
    async def main() -> None:
        async with node() as (here, _), node() as (other, _), node() as (there, inbox):
            for sender in (here, other, here, other):
                sender.send(sender.dial(there.control), b"x")
                await asyncio.sleep(0)
            routes = [(await soon(inbox.messages.get()))[0] for _ in range(4)]
            assert len(set(routes)) == 2

    run(main)


@pytest.mark.parametrize("secret", [SECRET, None], ids=["curve", "plain"])
@pytest.mark.parametrize("size", [1, 70_000, 4 * MIB, PAYLOAD_BYTES])
def test_payloads_arrive_whole_and_in_order(secret: bytes | None, size: int) -> None:
    async def main() -> None:
        async with node(secret) as (here, _), node(secret) as (there, inbox):
            payloads = [bytes([i]) * size for i in range(5)]
            sent = [here.send(here.dial(there.data), b"%d" % i, memoryview(payload)) for i, payload in enumerate(payloads)]
            for i, expected in enumerate(payloads):
                _, header, payload = await soon(inbox.messages.get())
                assert header == b"%d" % i
                assert payload is not None
                assert payload.readonly
                assert payload == expected
            await until(lambda: all(message is not None and message.done for message in sent))

    run(main)


def test_a_payload_outlives_its_connection() -> None:
    async def main() -> None:
        async with node() as (there, inbox), node() as (here, _):
            here.send(here.dial(there.data), b"h", memoryview(b"p" * MIB))
            _, _, payload = await soon(inbox.messages.get())
        assert payload == b"p" * MIB

    run(main)


def test_memory_is_lent_until_done() -> None:
    """Queued for nobody, the payload is still needed; forgotten, it is free."""

    async def main() -> None:
        async with node() as (here, _):
            route = here.dial(f"tcp://127.0.0.1:{free_port()}")
            sent = here.send(route, b"h", memoryview(bytearray(MIB)))
            assert sent is not None
            assert not sent.done
            here.forget(route)
            await until(lambda: sent.done)
            assert here.send(route, b"h") is None

    run(main)


def test_a_forgotten_address_is_dialled_anew() -> None:
    async def main() -> None:
        async with node() as (here, _), node() as (there, inbox):
            first = here.dial(there.control)
            here.forget(first)
            here.forget("no route at all")
            second = here.dial(there.control)
            assert second is not first
            assert here.send(first, b"h") is None
            assert here.send(second, b"h")
            assert (await soon(inbox.messages.get()))[1] == b"h"

    run(main)


def free_port(count: int = 1) -> int:
    """A port with count - 1 free ones behind it."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port: int = first.getsockname()[1]
        if port + count <= 65536 and all(_is_free(port + i) for i in range(count)):
            return port


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("ours", "theirs", "reasons"),
    [
        (SECRET, OTHER, {"wrong secret"}),
        (None, SECRET, {"it wants a secret"}),
        (SECRET, None, {"it has no secret", "wrong secret"}),  # the latter where the other end hangs up first
    ],
    ids=["wrong", "missing here", "missing there"],
)
def test_a_refused_handshake_says_why_and_goes_on(ours: bytes | None, theirs: bytes | None, reasons: set[str]) -> None:
    async def main() -> None:
        async with node(ours) as (here, inbox), node(theirs) as (there, their_inbox):
            route = here.dial(there.control)
            here.send(route, b"let me in")
            for _ in range(2):  # redialled after each refusal
                lost, reason = await soon(inbox.losses.get())
                assert lost is route
                assert reason in reasons
            assert their_inbox.messages.empty()

    run(main)


def test_nobody_listens() -> None:
    async def main() -> None:
        async with node() as (here, inbox):
            route = here.dial(f"tcp://127.0.0.1:{free_port()}")
            here.send(route, b"h")
            for _ in range(2):
                assert await soon(inbox.losses.get()) == (route, "connection refused")

    run(main)


def test_somebody_else_listens() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b" " * 100)
        await writer.drain()
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server, node() as (here, inbox):
            route = here.dial(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            here.send(route, b"h")
            for _ in range(2):
                _, reason = await soon(inbox.losses.get())
                assert reason in ("it doesn't speak our protocol", "wrong secret")

    run(main)


def test_a_silent_port_times_out() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with node() as (here, inbox):
                route = here.dial(f"tcp://127.0.0.1:{silent.getsockname()[1]}")
                here.send(route, b"h")
                assert await soon(inbox.losses.get()) == (route, "timed out")

    run(main)


def test_a_peer_that_comes_back_is_met_again() -> None:
    async def main() -> None:
        port = free_port(2)
        listen = f"tcp://127.0.0.1:{port}"
        async with node() as (here, inbox):
            route = here.dial(listen)
            async with node(listen=listen) as (_, their_inbox):
                here.send(route, b"first")
                await soon(their_inbox.messages.get())
            assert await soon(inbox.losses.get()) == (route, "closed")
            async with node(listen=listen) as (there, their_inbox):
                here.send(route, b"second")
                back, header, _ = await soon(their_inbox.messages.get())
                assert header == b"second"
                there.send(back, b"third")
                assert (await soon(inbox.messages.get()))[:2] == (route, b"third")
            assert there.send(back, b"too late") is None

    run(main)


def test_the_way_back_ends_with_the_connection() -> None:
    async def main() -> None:
        async with node() as (there, inbox):
            async with node() as (here, _):
                here.send(here.dial(there.control), b"h")
                back, _, _ = await soon(inbox.messages.get())
            await until(lambda: there.send(back, b"h") is None)

    run(main)


@pytest.mark.parametrize("channel", ["control", "data"])
def test_an_oversized_frame_costs_its_sender_the_connection(channel: str) -> None:
    async def main() -> None:
        async with node() as (here, inbox), node() as (there, their_inbox):
            route = here.dial(getattr(there, channel))
            longest = {"control": HEADER_BYTES, "data": PAYLOAD_BYTES}[channel]
            here.send(route, b"h", memoryview(bytes(longest)))
            assert (await soon(their_inbox.messages.get()))[1] == b"h"
            here.send(route, b"h", memoryview(bytes(longest + 65)))
            assert await soon(inbox.losses.get()) == (route, "closed")
            assert their_inbox.messages.empty()
            here.send(route, b"again")
            assert (await soon(their_inbox.messages.get()))[1] == b"again"

    run(main)


def test_a_peer_that_never_reads_fills_a_queue_not_memory() -> None:
    async def main() -> None:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as deaf:
            deaf.setsockopt(zmq.LINGER, 0)
            deaf.setsockopt(zmq.RCVHWM, 1)
            port = deaf.bind_to_random_port("tcp://127.0.0.1")
            async with node(None) as (here, _):
                route = here.dial(f"tcp://127.0.0.1:{port}")
                payload = memoryview(bytes(MIB))
                accepted = 0
                while here.send(route, b"h", payload):
                    accepted += 1
                    await asyncio.sleep(0)
                    assert accepted < 300
                assert accepted >= 64  # the agent's credit, in messages, fits
                assert here.send(route, b"h") is None

    run(main)


def test_a_receiver_that_raises_loses_only_that_message() -> None:
    async def main() -> None:
        seen: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(str(context["exception"])))
        async with node() as (here, _), node() as (there, inbox):
            there._receiver = Failing(inbox)
            for text in (b"bad", b"good"):
                here.send(here.dial(there.control), text)
            assert (await soon(inbox.messages.get()))[1] == b"good"
            assert seen == ["on purpose"]

    run(main)


class Failing(Inbox):
    def __init__(self, inbox: Inbox) -> None:
        self.messages, self.losses = inbox.messages, inbox.losses

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        if header == b"bad":
            raise ValueError("on purpose")
        super().received(route, header, payload)


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def test_close_leaves_nothing() -> None:
    async def main() -> None:
        threads, before = set(threading.enumerate()), descriptors()
        for _ in range(3):
            await busy()
        assert descriptors() == before
        assert set(threading.enumerate()) == threads

    async def busy() -> None:
        async with node() as (here, _), node() as (there, inbox):
            here.send(here.dial(there.data), b"h", memoryview(bytes(MIB)))
            await soon(inbox.messages.get())
            here.send(here.dial(f"tcp://127.0.0.1:{free_port()}"), b"h", memoryview(bytes(MIB)))
            here.send(here.dial(there.data), b"on its way", memoryview(bytes(MIB)))
        await here.close()
        assert here.send(here.dial(there.data), b"h") is None

    run(main)
