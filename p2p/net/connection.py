"""One dialled connection: a DEALER that is opened on first use, and watched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import zmq

from p2p.net.channel import Channel
from p2p.net.monitor import EVENTS, Attempts, parse_event
from p2p.net.transport import Sent

EVENT_QUEUE = 10_000
"""Socket events held for a busy loop; past these, libzmq's thread would wait for it."""


class Connection:
    """Redials until closed. libzmq does so by itself but after a protocol error; then this does, after `revive` seconds."""

    def __init__(
        self,
        address: str,
        open_socket: Callable[[], zmq.Socket[bytes]],
        arrived: Callable[[Connection, list[zmq.Frame]], None],
        lost: Callable[[Connection, str], None],
        *,
        secured: bool,
        revive: float,
    ) -> None:
        self.address = address
        self._open_socket = open_socket
        self._arrived, self._lost = arrived, lost
        self._attempts = Attempts(secured)
        self._revive = revive
        self._loop = asyncio.get_running_loop()
        self._channel: Channel | None = None
        self._monitor: Channel | None = None
        self._redial: asyncio.TimerHandle | None = None
        self._closed = False

    def send(self, frames: Sequence[bytes], payload: memoryview | None) -> Sent | None:
        """As `Channel.send`; None too where the connection is closed, or no socket is to be had."""
        if self._closed:
            return None
        if self._channel is None:
            try:
                self._channel = self._open()
            except zmq.ZMQError as error:  # out of descriptors
                self._loop.call_soon(self._tell, str(error.strerror))
                return None
        return self._channel.send(frames, payload)

    def close(self) -> None:
        """For good."""
        self._closed = True
        self._stop_waiting()
        if self._channel and not self._channel.socket.closed:
            self._channel.socket.disable_monitor()
        for channel in (self._monitor, self._channel):
            if channel:
                channel.close()

    def _open(self) -> Channel:
        dealer = self._open_socket()
        endpoint = f"inproc://monitor-{id(self)}"
        try:
            dealer.monitor(endpoint, EVENTS)
            watcher = dealer.context.socket(zmq.PAIR)
        except zmq.ZMQError:
            dealer.close(0)
            raise
        watcher.setsockopt(zmq.LINGER, 0)
        watcher.setsockopt(zmq.RCVHWM, EVENT_QUEUE)
        watcher.connect(endpoint)
        self._monitor = Channel(self._loop, watcher, self._event)
        dealer.connect(self.address)
        return Channel(self._loop, dealer, lambda frames: self._arrived(self, frames))

    def _event(self, frames: list[zmq.Frame]) -> None:
        event, value = parse_event(frames[0].bytes)
        self._stop_waiting()
        if event == zmq.EVENT_DISCONNECTED:  # libzmq tells at once if it tries again
            self._redial = self._loop.call_later(self._revive, self._dial_again)
        reason = self._attempts.event(event, value, self._loop.time())
        if reason:
            self._tell(reason)

    def _tell(self, reason: str) -> None:
        if not self._closed:
            self._lost(self, reason)

    def _dial_again(self) -> None:
        assert self._channel
        with suppress(zmq.ZMQError):  # nothing is connected: that is why
            self._channel.socket.disconnect(self.address)
        self._channel.socket.connect(self.address)

    def _stop_waiting(self) -> None:
        if self._redial:
            self._redial.cancel()
            self._redial = None
