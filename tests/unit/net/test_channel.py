"""A ZeroMQ socket on an event loop: everything is read, whoever swallowed the signal."""

import asyncio
import errno
import itertools
import select
from collections.abc import Callable, Coroutine
from typing import Any

import zmq

from p2p.net.channel import BATCH, Channel
from p2p.net.connection import Connection

Body = Callable[[Channel, "zmq.Socket[bytes]", "asyncio.Queue[bytes]"], Coroutine[Any, Any, None]]


def on_a_pair(body: Body) -> None:
    """Runs `body` with a channel, the socket at its other end, and a queue of what the channel got."""

    async def main() -> None:
        with zmq.Context() as context, context.socket(zmq.PAIR) as far, context.socket(zmq.PAIR) as near:
            far.bind("inproc://pair")
            near.connect("inproc://pair")
            got: asyncio.Queue[bytes] = asyncio.Queue()
            channel = Channel(asyncio.get_running_loop(), near, lambda frames: got.put_nowait(frames[0].bytes))
            await body(channel, far, got)
            channel.close()
            channel.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_send_that_swallows_the_signal_loses_nothing() -> None:
    async def body(channel: Channel, far: "zmq.Socket[bytes]", got: "asyncio.Queue[bytes]") -> None:
        far.send(b"first")
        assert await got.get() == b"first"
        await asyncio.sleep(0)
        far.send(b"second")
        for _ in range(100_000):  # libzmq looks at its signals about once a millisecond
            if not select.select([channel.socket], [], [], 0)[0]:
                break
            channel.send((b"out",))
            far.recv()
        assert not select.select([channel.socket], [], [], 0)[0]
        assert await got.get() == b"second"

    on_a_pair(body)


def test_others_run_between_batches() -> None:
    async def body(channel: Channel, far: "zmq.Socket[bytes]", got: "asyncio.Queue[bytes]") -> None:
        await asyncio.sleep(0)
        for _ in range(5 * BATCH):
            far.send(b"x")
        seen = [0]
        while seen[-1] < 5 * BATCH:
            await asyncio.sleep(0)
            seen.append(got.qsize())
        assert max(after - before for before, after in itertools.pairwise(seen)) == BATCH

    on_a_pair(body)


def test_no_room_is_none() -> None:
    async def body(channel: Channel, far: "zmq.Socket[bytes]", got: "asyncio.Queue[bytes]") -> None:
        sent = 0
        while channel.send((b"x",)):
            sent += 1
        assert sent >= 1000
        far.recv()

    on_a_pair(body)


def test_without_a_descriptor_a_connection_is_lost_not_an_error() -> None:
    def exhausted() -> "zmq.Socket[bytes]":
        raise zmq.ZMQError(errno.EMFILE)

    async def main() -> None:
        lost: asyncio.Queue[str] = asyncio.Queue()
        connection = Connection(
            "tcp://127.0.0.1:1", exhausted, lambda *_: None, lambda _, reason: lost.put_nowait(reason), secured=True, revive=1.0
        )
        assert connection.send((b"x",), None) is None
        assert await lost.get() == "Too many open files"
        connection.close()

    asyncio.run(asyncio.wait_for(main(), 60))
