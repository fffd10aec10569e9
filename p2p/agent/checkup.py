"""A member's part in `starlings doctor`: it measures and calls back for whoever knows the secret."""

from __future__ import annotations

import asyncio

from p2p.agent.post import Post
from p2p.errors import JoinError, WireError
from p2p.net import wire
from p2p.net.messages import CallBack, Called, CalledBack, Measure, Measured, Shard
from p2p.net.transport import Route

LARGEST = 1 << 20
"""Bytes of one measurement."""
HOLD = 2.0
"""Seconds that a call has to come through; one is made at a time."""


def filler(nbytes: int) -> tuple[Shard, memoryview | None]:
    """A payload of zeros, and what the header says of it."""
    payload = memoryview(bytes(nbytes)) if nbytes else None
    return Shard(0, 0, 0, "", "", nbytes, wire.checksum(payload) if payload is not None else 0), payload


class Checkup:
    """Answers by the connection on which the question came."""

    def __init__(self, post: Post, state: int) -> None:
        self._post = post
        self._state = state
        self._calling = False

    def measure(self, route: Route, message: Measure) -> None:
        """As many bytes back as asked for."""
        if not 0 <= message.reply <= LARGEST:
            raise WireError("value", f"a measurement of {message.reply} bytes")
        shard, payload = filler(message.reply)
        self._post.answer(route, Measured(message.seq, self._state, shard), payload)

    async def call_back(self, route: Route, message: CallBack) -> None:
        """Dial the address that whoever asks would advertise."""
        if self._calling:
            self._post.answer(route, CalledBack(message.token, "busy with another call; try again"))
            return
        self._calling = True
        try:
            reason = await self._call(message)
        finally:
            self._calling = False
        self._post.answer(route, CalledBack(message.token, reason))

    async def _call(self, message: CallBack) -> str:
        try:
            line = self._post.transport.dial(message.address)
        except JoinError as error:
            return str(error)
        try:
            if self._post.answer(line, Called(message.token)) is None:
                return "no connection to be had"
            await asyncio.sleep(HOLD)
            return ""
        finally:
            if self._post.owner(line) is None:
                self._post.transport.forget(line)
