"""The bytes alone over one CURVE connection: the last rank asks the first one for them, a few messages ahead; others wait.

python curve.py MEGABYTES RANK SIZE FOLDER
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import threading
import time
from pathlib import Path

from cpu import Cpu
from serving import fetch, post, serve

from p2p.net.transport import Route
from p2p.net.zeromq import ZmqTransport

MESSAGE = 1 << 20
WINDOW = 4


class End:
    """One end: asks for messages until all have come, or answers each question with one."""

    def __init__(self, secret: bytes) -> None:
        self.transport = ZmqTransport("tcp://127.0.0.1:0", secret=secret)
        self._payload = memoryview(bytes(MESSAGE))
        self._unasked = self._left = 0
        self._done = asyncio.Event()

    async def fetch(self, address: str, nbytes: int) -> None:
        """From the dial to the last byte."""
        self._unasked = self._left = -(-nbytes // MESSAGE)
        self._done.clear()
        route = self.transport.dial(address)
        for _ in range(WINDOW):
            self._ask(route)
        await self._done.wait()
        self.transport.forget(route)

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        if payload is None:
            self.transport.send(route, b"here", self._payload)
            return
        self._left -= 1
        self._ask(route)
        if not self._left:
            self._done.set()

    def lost(self, route: Route, reason: str) -> None:
        """Only loopback."""

    def _ask(self, route: Route) -> None:
        if self._unasked:
            self._unasked -= 1
            self.transport.send(route, b"more")


def main() -> None:
    megabytes, rank, size, folder = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def start() -> End:
        end = End(hashlib.blake2b(folder.name.encode(), digest_size=32).digest())
        await end.transport.start(end)
        return end

    end = asyncio.run_coroutine_threadsafe(start(), loop).result()
    if not rank:
        post(folder, "address", end.transport.data)
    cpu = Cpu()

    def join() -> dict[str, float]:
        cpu.begin()
        began = time.monotonic()
        if rank == size - 1:
            asyncio.run_coroutine_threadsafe(end.fetch(fetch(folder, "address"), int(megabytes * 1e6)), loop).result()
        return {"began": began, "ended": time.monotonic()}

    def look() -> dict[str, object]:
        return {"steps": [], "cpu": cpu.spent()}

    serve({"join": join, "look": look, "rest": list})


main()
