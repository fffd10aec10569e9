"""A forked child lets go of its parent's connections, and of nothing else."""

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress

import pytest

from p2p.net.transport import Route
from p2p.net.zeromq import ZmqTransport


class Hearing:
    """A receiver that counts."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        self.heard.put_nowait(header)

    def lost(self, route: Route, reason: str) -> None:
        raise AssertionError(reason)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_holds_no_connection() -> None:
    async def main() -> None:
        here, there, ear = ZmqTransport("tcp://127.0.0.1:0"), ZmqTransport("tcp://127.0.0.1:0"), Hearing()
        with socket.create_server(("127.0.0.1", 0)):
            await here.start(Hearing())
            await there.start(ear)
            here.send(here.dial(there.data), b"h")
            await ear.heard.get()
            before, after = tcp_sockets(), in_child(lambda: (here.abandon_after_fork(), tcp_sockets())[1])
            assert (before, after) == (7, 4)  # two listening each, both ends of the connection, and one of another's
            here.send(here.dial(there.data), b"the parent goes on")
            assert await ear.heard.get() == b"the parent goes on"
            await here.close()
            await there.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def in_child(count: Callable[[], int]) -> int:
    """What `count` finds in a forked child; 255 where it raises."""
    child = os.fork()
    if child == 0:
        status = 255
        try:
            status = count()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def tcp_sockets() -> int:
    names = []
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # the one that listed them
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                names.append(name)
    kinds = []
    for name in names:
        with socket.socket(fileno=os.dup(int(name))) as duplicate:
            kinds.append((duplicate.family, duplicate.type))
    return sum(kind == (family, socket.SOCK_STREAM) for kind in kinds for family in (socket.AF_INET, socket.AF_INET6))
