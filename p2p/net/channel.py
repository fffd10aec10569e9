"""One ZeroMQ socket on an asyncio event loop."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence

import zmq

from p2p.net.transport import Sent

BATCH = 8
"""Messages read in one go: timers and other sockets wait for so many at most."""
_NO_ROOM = (errno.EAGAIN, errno.EHOSTUNREACH)


class Channel:
    """Reads in batches; sends at once or not at all.

    A ZeroMQ descriptor tells only that *something* happened, once, and any call on the socket may swallow that. So
    whoever reads must read until there is nothing left, and look again after each send.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, zmq_socket: zmq.Socket[bytes], arrived: Callable[[list[zmq.Frame]], None]
    ) -> None:
        self.socket = zmq_socket
        self._loop = loop
        self._arrived = arrived
        self._descriptor = zmq_socket.fileno()
        self._due = False
        loop.add_reader(self._descriptor, self._read)
        self._look_again()

    def send(self, frames: Sequence[bytes], payload: memoryview | None = None) -> Sent | None:
        """One message, its payload without a copy; None where there is no room, or nobody there any more."""
        *first, last = frames
        try:
            for frame in first:
                self.socket.send(frame, zmq.NOBLOCK | zmq.SNDMORE)
            if payload is None:
                self.socket.send(last, zmq.NOBLOCK)
                return _SENT
            self.socket.send(last, zmq.NOBLOCK | zmq.SNDMORE)
            return self.socket.send(payload, zmq.NOBLOCK, copy=False, track=True)
        except zmq.ZMQError as error:
            if error.errno in _NO_ROOM:
                return None
            raise
        finally:
            self._look_again()

    def close(self) -> None:
        """Drop what is queued, both ways."""
        if not self.socket.closed:
            self._loop.remove_reader(self._descriptor)
            self.socket.close(0)

    def _look_again(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._due = False
        drained = False
        try:
            drained = self._read_batch()
        finally:  # whatever the reader did, what is left is read
            if not drained:
                self._look_again()

    def _read_batch(self) -> bool:
        """Whether nothing is left."""
        for _ in range(BATCH):
            if self.socket.closed:
                return True
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return True
            self._arrived(frames)
        return False


_SENT = zmq.MessageTracker()  # of nothing: done
