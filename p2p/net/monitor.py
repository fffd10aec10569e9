"""What becomes of a dialled connection, told by libzmq's socket events and put into words."""

from __future__ import annotations

import errno
import struct
from enum import Enum, auto
from typing import Final

import zmq

EVENTS: Final = (
    zmq.EVENT_CONNECT_DELAYED | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)  # fmt: skip
_REFUSED_WITHIN = 1.0  # seconds: libzmq tells that a connect failed, not why; a refusal comes at once


def parse_event(frame: bytes) -> tuple[int, int]:
    """The event's number and its value, from the first frame of a monitor's message."""
    event, value = struct.unpack("=HI", frame)
    return event, value


class Phase(Enum):
    IDLE = auto()  # between attempts
    CONNECTING = auto()
    SHAKING = auto()  # connected, handshake under way
    UP = auto()
    LOST = auto()  # and the reason told


class Attempts:
    """Follows the attempts to connect to one address: events and the time in, reasons out."""

    def __init__(self, secured: bool) -> None:
        self._secured = secured
        self._phase = Phase.IDLE
        self._started = 0.0

    def event(self, event: int, value: int, now: float) -> str | None:
        """Why the connection is lost, if this event says that it is."""
        before = self._phase
        if event == zmq.EVENT_CONNECT_DELAYED:
            self._phase, self._started = Phase.CONNECTING, now
        elif event == zmq.EVENT_CONNECTED:
            self._phase = Phase.SHAKING
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._phase = Phase.UP
        elif event == zmq.EVENT_CONNECT_RETRIED:
            self._phase = Phase.IDLE
            return self._not_connected(before, now)
        else:
            self._phase = Phase.LOST
            return _CLOSED.get(before) if event == zmq.EVENT_DISCONNECTED else self._refused(event, value)
        return None

    def _not_connected(self, before: Phase, now: float) -> str | None:
        if before is Phase.CONNECTING:
            return "connection refused" if now - self._started < _REFUSED_WITHIN else "timed out"
        return "unknown host, or no route to it" if before is Phase.IDLE else None

    def _refused(self, event: int, value: int) -> str:
        """Of two ends that differ in the secret either may hang up first: then no detail is told."""
        if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL and value == errno.EAGAIN:
            return "timed out"  # in the handshake
        if not self._secured:
            return "it wants a secret"
        return "it has no secret" if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL else "wrong secret"


_CLOSED = {Phase.UP: "closed", Phase.SHAKING: "it doesn't speak our protocol"}
