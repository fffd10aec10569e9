"""Sequences of socket events, as libzmq gives them, and the words for them."""

import errno
import struct

import pytest
import zmq

from p2p.net.monitor import Attempts, parse_event

DELAYED, RETRIED = zmq.EVENT_CONNECT_DELAYED, zmq.EVENT_CONNECT_RETRIED
CONNECTED, DISCONNECTED = zmq.EVENT_CONNECTED, zmq.EVENT_DISCONNECTED
UP = zmq.EVENT_HANDSHAKE_SUCCEEDED
NO_DETAIL, PROTOCOL, AUTH = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)
Step = tuple[float, int, int]

SHAKING = [(0, DELAYED, 115), (0, CONNECTED, 7)]
GONE = [(0, DISCONNECTED, 7), (0, RETRIED, 200)]

CASES: list[tuple[str, bool, list[Step], list[str]]] = [
    ("refused", True, [(0, DELAYED, 115), (0.001, RETRIED, 200)] * 2, ["connection refused"] * 2),
    ("nobody answers", True, [(0, DELAYED, 115), (5, RETRIED, 200)], ["timed out"]),
    ("no such host", True, [(0, RETRIED, 200), (0.2, RETRIED, 400)], ["unknown host, or no route to it"] * 2),
    ("another secret", True, [*SHAKING, (0, NO_DETAIL, errno.EPIPE), *GONE], ["wrong secret"]),
    ("not let in", True, [*SHAKING, (0, AUTH, 400), *GONE[:1]], ["wrong secret"]),
    ("it is plain", True, [*SHAKING, (0, PROTOCOL, 1), *GONE[:1]], ["it has no secret"]),
    ("we are plain", False, [*SHAKING, (0, PROTOCOL, 1), *GONE[:1]], ["it wants a secret"]),
    ("a silent handshake", True, [*SHAKING, (5, NO_DETAIL, errno.EAGAIN), *GONE], ["timed out"]),
    ("we are plain, it hangs up first", False, [*SHAKING, (0, NO_DETAIL, errno.EPIPE), *GONE], ["it wants a secret"]),
    ("a web server", True, [*SHAKING, *GONE[:1]], ["it doesn't speak our protocol"]),
    ("then gone", True, [*SHAKING, (0, UP, 0), *GONE, (1, DELAYED, 115), (1, RETRIED, 400)], ["closed", "connection refused"]),
    ("closed twice", True, [*SHAKING, (0, UP, 0), *GONE] * 2, ["closed", "closed"]),
]


@pytest.mark.parametrize(("secured", "steps", "reasons"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_loss_is_told_once(secured: bool, steps: list[Step], reasons: list[str]) -> None:
    attempts = Attempts(secured)
    assert [reason for now, event, value in steps if (reason := attempts.event(event, value, now))] == reasons


def test_an_event_is_read_from_its_frame() -> None:
    assert parse_event(struct.pack("=HI", DISCONNECTED, 7)) == (DISCONNECTED, 7)
