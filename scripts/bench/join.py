"""How long a joiner of a large model takes, against the same bytes over one CURVE connection, and what donors' steps lose.

    python scripts/bench/join.py --megabytes 100 --joins 10 --donors 1

Members and joiner are processes of this machine. The trainers mostly wait (a step sleeps `--pause` seconds), as they do
on a GPU. Prints the median of each.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import secrets
import time
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.synchronize import Event
from statistics import median

import torch
from torch import nn

import p2p
from p2p.net.transport import Route
from p2p.net.zeromq import ZmqTransport

BUNDLE = 1 << 20
WINDOW = 4


def main() -> None:
    args = arguments()
    context = multiprocessing.get_context("spawn")
    plain = [curve(context, args.megabytes * 10**6) for _ in range(args.joins)]
    stop, secret = context.Event(), secrets.token_bytes(32)
    members: list[tuple[SpawnProcess, Connection]] = []
    address = ""
    for _ in range(args.donors):
        here, there = context.Pipe()
        process = context.Process(target=member, args=(there, stop, secret, address, args.megabytes, args.pause))
        process.start()
        address = here.recv()
        members.append((process, here))
    time.sleep(2)
    joins = [join(secret, address, args.megabytes) for _ in range(args.joins)]
    stop.set()
    steps = [here.recv() for _, here in members]
    for process, _ in members:
        process.join()
    during: list[float] = []
    calm: list[float] = []
    for began, seconds in (step for one in steps for step in one):
        inside = any(began < end and began + seconds > start for start, end, _ in joins)
        (during if inside else calm).append(seconds)
    print(f"{args.megabytes} MB over one CURVE connection: {median(plain):.3f} s")
    print(f"join, from the knock to the applied state: {median(total for *_, total in joins):.3f} s")
    print(f"a donor's step: {median(calm):.4f} s in the calm, {median(during):.4f} s during joins ({len(during)} steps)")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time joins.")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--joins", type=int, default=10)
    parser.add_argument("--donors", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds that a step waits")
    return parser.parse_args()


def network(megabytes: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Parameters of so many MB, without optimizer state."""
    torch.set_num_threads(1)
    model = nn.ParameterList([torch.zeros(1000, 1000) for _ in range(megabytes // 4)])
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def member(pipe: Connection, stop: Event, secret: bytes, peer: str, megabytes: int, pause: float) -> None:
    model, optimizer = network(megabytes)
    steps = []
    with p2p.join(model, optimizer, secret=secret, peers=peer, listen="tcp://127.0.0.1:0", join_timeout=60) as node:
        pipe.send(node.address)
        while not stop.is_set():
            began, started = time.time(), time.perf_counter()
            time.sleep(pause)
            optimizer.step()
            steps.append((began, time.perf_counter() - started))
    pipe.send(steps)


def join(secret: bytes, address: str, megabytes: int) -> tuple[float, float, float]:
    """When it began and ended, and how long it took."""
    model, optimizer = network(megabytes)
    began, started = time.time(), time.perf_counter()
    node = p2p.join(model, optimizer, secret=secret, peers=address, listen="tcp://127.0.0.1:0", join_timeout=60)
    seconds = time.perf_counter() - started
    ended = time.time()
    node.close()
    time.sleep(0.5)
    return began, ended, seconds


# --- the same bytes over one connection --------------------------------------------------------------------------


class Sink:
    """Asks for bundles, a few ahead, until all have come; or answers each question with one."""

    def __init__(self, bundles: int) -> None:
        self.transport: ZmqTransport
        self.done = asyncio.Event()
        self.left = self.unasked = bundles
        self._payload = memoryview(bytes(BUNDLE))

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        if payload is None:
            self.transport.send(route, b"here", self._payload)
            return
        self.left -= 1
        self.ask(route)
        if not self.left:
            self.done.set()

    def ask(self, route: Route) -> None:
        if self.unasked:
            self.unasked -= 1
            self.transport.send(route, b"more")

    def lost(self, route: Route, reason: str) -> None:
        """Only loopback."""


def serve(pipe: Connection, secret: bytes) -> None:
    async def run() -> None:
        sink = Sink(0)
        sink.transport = ZmqTransport("tcp://127.0.0.1:0", secret=secret)
        await sink.transport.start(sink)
        pipe.send(sink.transport.data)
        await asyncio.to_thread(pipe.recv)
        await sink.transport.close()

    asyncio.run(run())


async def fetch(address: str, secret: bytes, nbytes: int) -> float:
    sink = Sink(-(-nbytes // BUNDLE))
    sink.transport = ZmqTransport("tcp://127.0.0.1:0", secret=secret)
    await sink.transport.start(sink)
    began = time.perf_counter()
    route = sink.transport.dial(address)
    for _ in range(WINDOW):
        sink.ask(route)
    await sink.done.wait()
    seconds = time.perf_counter() - began
    await sink.transport.close()
    return seconds


def curve(context: SpawnContext, nbytes: int) -> float:
    """Seconds from the dial to the last byte."""
    secret = secrets.token_bytes(32)
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, secret))
    process.start()
    try:
        return asyncio.run(fetch(here.recv(), secret, nbytes))
    finally:
        here.send(None)
        process.join()


if __name__ == "__main__":
    main()
