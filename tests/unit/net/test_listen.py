"""Where a transport listens, what it advertises, and what it refuses to bind or dial."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import zmq

from p2p.config import TEST
from p2p.errors import JoinError, ListenError, SecretError
from p2p.net.transport import Route
from p2p.net.zeromq import ZmqTransport

SECRET = bytes(range(32))


class Nobody:
    """A receiver that nothing comes to."""

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        raise AssertionError

    def lost(self, route: Route, reason: str) -> None:
        raise AssertionError


@asynccontextmanager
async def node(secret: bytes | None = SECRET, listen: str = "tcp://127.0.0.1:0", **more: Any) -> AsyncIterator[ZmqTransport]:
    transport = ZmqTransport(listen, secret=secret, config=TEST.net, **more)
    await transport.start(Nobody())
    try:
        yield transport
    finally:
        await transport.close()


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 30))


@contextmanager
def taken_after_a_free_one() -> Iterator[int]:
    """A port that is in use, below which there is a free one."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port: int = taken.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port - 1)).close()
            except OSError:
                continue
            yield port
            return


def test_a_port_in_use_is_named() -> None:
    async def main() -> None:
        with taken_after_a_free_one() as port:
            transport = ZmqTransport(f"tcp://127.0.0.1:{port - 1}", secret=SECRET)
            with pytest.raises(ListenError, match=rf"can't listen on tcp://127.0.0.1:{port} \(data\): the port is in use"):
                await transport.start(Nobody())
            await transport.close()

    run(main)


@pytest.mark.parametrize(
    ("listen", "reason"),
    [
        ("tcp://203.0.113.1:0", "not an address of this machine"),
        ("tcp://no.such.host.invalid:0", "can't listen on"),
        ("tcp://127.0.0.1:65535", "65536 .data.: not a port"),
    ],
)
def test_an_address_that_is_not_ours(listen: str, reason: str) -> None:
    async def main() -> None:
        with pytest.raises(ListenError, match=reason):
            await ZmqTransport(listen, secret=SECRET).start(Nobody())

    run(main)


@pytest.mark.parametrize(
    "listen", ["tcp://*:0", "tcp://0.0.0.0:0", "tcp://10.0.0.1:7000", "tcp://[::]:0", "tcp://example.org:1"]
)
def test_without_a_secret_only_loopback_is_bound(listen: str) -> None:
    with pytest.raises(SecretError, match="without a secret: only loopback"):
        ZmqTransport(listen)


def test_without_a_secret_only_loopback_is_dialled() -> None:
    async def main() -> None:
        async with node(None) as here:
            with pytest.raises(SecretError, match=r"can't dial tcp://10\.0\.0\.1:7000 without a secret"):
                here.dial("tcp://10.0.0.1:7000")
        async with node(None, insecure=True) as here:
            here.dial("tcp://10.0.0.1:7000")

    run(main)


@pytest.mark.parametrize("address", ["tcp://*:7000", "tcp://0.0.0.0:7000", "tcp://10.0.0.1:0", "10.0.0.1:7000", ""])
def test_what_cannot_be_dialled(address: str) -> None:
    async def main() -> None:
        async with node() as here:
            with pytest.raises(JoinError, match=r"can't be dialled|no address"):
                here.dial(address)

    run(main)


@pytest.mark.parametrize(
    ("listen", "advertise", "expected"),
    [
        ("tcp://127.0.0.1:0", None, r"tcp://127\.0\.0\.1:{port}"),
        ("tcp://[::1]:0", None, r"tcp://\[::1\]:{port}"),
        ("tcp://*:0", None, r"tcp://(?!0\.0\.0\.0|\*)\S+:{port}"),
        ("tcp://*:0", "node.example.org", r"tcp://node\.example\.org:{port}"),
        ("tcp://*:0", "fd00::7", r"tcp://\[fd00::7\]:{port}"),
    ],
)
def test_what_is_advertised_can_be_dialled(listen: str, advertise: str | None, expected: str) -> None:
    async def main() -> None:
        async with node(listen=listen, advertise=advertise) as here:
            for address, channel in ((here.control, "control"), (here.data, "data")):
                port = here._routers[channel].socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2]
                assert re.fullmatch(expected.format(port=port), address)

    run(main)


def test_a_forwarded_port_is_advertised_with_the_next_one() -> None:
    async def main() -> None:
        async with node(advertise="tcp://gate.example.org:9000") as here:
            assert (here.control, here.data) == ("tcp://gate.example.org:9000", "tcp://gate.example.org:9001")

    run(main)


@pytest.mark.parametrize(
    ("listen", "advertise", "peer", "host"),
    [
        ("tcp://*:0", None, "tcp://127.0.0.1:7000", "tcp://127.0.0.1"),
        ("tcp://*:0", None, "tcp://[::1]:7000", "tcp://[::1]"),
        ("tcp://*:0", "node.example.org", "tcp://127.0.0.1:7000", "tcp://node.example.org"),
        ("tcp://127.0.0.2:0", None, "tcp://127.0.0.1:7000", "tcp://127.0.0.2"),
    ],
)
def test_a_joiner_advertises_the_interface_that_leads_to_its_peer(
    listen: str, advertise: str | None, peer: str, host: str
) -> None:
    async def main() -> None:
        async with node(listen=listen, advertise=advertise) as here:
            here.face(peer)
            assert [address.rpartition(":")[0] for address in (here.control, here.data)] == [host, host]
            assert here.control != here.data

    run(main)


@pytest.mark.parametrize("advertise", ["*", "0.0.0.0", "tcp://*:7000", "host:7000", ""])
def test_what_cannot_be_advertised(advertise: str) -> None:
    with pytest.raises(JoinError):
        ZmqTransport("tcp://127.0.0.1:0", advertise=advertise)
