"""One direction of a simulated connection: messages on their way, delivered in the order in which they were sent."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from contextvars import Context
from typing import Protocol

from p2p.net.physics import Path
from p2p.net.transport import Route


class Endpoint(Protocol):
    """Where a lane leads: its loop, the context in which it runs, and what takes its messages."""

    loop: asyncio.AbstractEventLoop
    context: Context

    def deliver(self, route: Route, header: bytes, payload: bytes | None) -> None: ...


class Message:
    """One message under way. `done` once it was delivered or lost: until then the sender's memory is read."""

    __slots__ = ("done", "finish", "header", "hop", "lane", "nbytes", "payload")

    def __init__(self, header: bytes, payload: memoryview | None, scale: float) -> None:
        self.header = header
        self.payload = payload
        self.nbytes = len(header) + (int(payload.nbytes * scale) if payload is not None else 0)
        self.done = False
        self.finish = 0.0  # when its last byte leaves the last pipe entered so far
        self.hop = 0
        self.lane: Lane

    def proceed(self, finish: float = 0.0) -> None:
        """Into the next pipe of its path, or on to its arrival. The first byte does not wait for the last one."""
        self.finish = max(self.finish, finish)
        lane = self.lane
        if not lane.alive:
            return
        if self.hop == len(lane.path.pipes):
            lane.arrive(self.finish)
            return
        pipe = lane.path.pipes[self.hop]
        self.hop += 1
        pipe.enter(lane.path, self.nbytes, self.proceed)


class Lane:
    """One direction of an open connection; messages arrive in the order in which they were sent."""

    __slots__ = ("alive", "arrived", "flight", "held", "path", "route", "target", "urgent")

    def __init__(self, path: Path, target: Endpoint, route: Route, urgent: bool) -> None:
        self.path = path
        self.target = target
        self.route = route  # as the target names the connection
        self.urgent = urgent
        self.alive = True
        self.flight: deque[Message] = deque()
        self.held = 0  # messages that came to a cut
        self.arrived = 0.0  # when the last message arrives

    def launch(self, message: Message) -> None:
        message.lane = self
        self.path.sent += message.nbytes
        self.flight.append(message)
        if self.urgent:
            self.arrive(max([pipe.urgent(message.nbytes) for pipe in self.path.pipes], default=0.0))
        else:
            message.proceed()

    def arrive(self, finish: float) -> None:
        """The last byte leaves the last pipe at `finish`: set the moment of delivery."""
        path, loop = self.path, self.target.loop
        now = loop.time()
        when = max(finish, now) + path.latency
        if path.jitter:
            when += path.jitter * path.source.rng.random()
        self.arrived = when = max(when, self.arrived)
        if when > now:
            loop.call_at(when, self.deliver, context=self.target.context)
        else:
            loop.call_soon(self.deliver, context=self.target.context)

    def deliver(self) -> None:
        """Hand over the oldest message: whichever moment was set for whichever message, order is kept."""
        if not self.alive or not self.flight:
            return
        if self.path.cut_since is not None:
            self.held += 1
            return
        message = self.flight.popleft()
        header, payload = message.header, message.payload
        body = bytes(payload) if payload is not None else None
        message.done = True
        if self.path.corrupt and self.path.source.rng.random() < self.path.corrupt:
            header, body = flip(header, body, self.path.source.rng)
        self.target.deliver(self.route, header, body)

    def resume(self) -> None:
        """What came to the cut travels on."""
        held, self.held = self.held, 0
        for _ in range(held):
            self.arrive(0.0)

    def kill(self) -> None:
        self.alive = False
        for message in self.flight:
            message.done = True
        self.flight.clear()


def flip(header: bytes, payload: bytes | None, rng: random.Random) -> tuple[bytes, bytes | None]:
    """One bit of the message flipped, in the payload where there is one."""
    spoilt = bytearray(payload or header)
    bit = rng.randrange(8 * len(spoilt))
    spoilt[bit // 8] ^= 1 << bit % 8
    return (header, bytes(spoilt)) if payload else (bytes(spoilt), payload)
