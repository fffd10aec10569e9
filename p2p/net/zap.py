"""Who may connect: the answer to ZeroMQ's authentication protocol (ZAP, RFC 27).

Without a handler CURVE admits any key, and a handler that raises is dead for good. This one compares two byte strings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import zmq
from zmq.utils import z85

from p2p.net.channel import Channel

DOMAIN = b"starlings"
_ENDPOINT = "inproc://zeromq.zap.01"


class Doorkeeper:
    """Admits those who hold one CURVE key; counts the others."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: zmq.Context[zmq.Socket[bytes]], client: bytes) -> None:
        """`client` is the one admitted public key, in Z85."""
        self.refused = 0
        self._key = z85.decode(client)
        self._channel = Channel(loop, _bound(context), self._asked)

    def close(self) -> None:
        self._channel.close()

    def _asked(self, frames: list[zmq.Frame]) -> None:
        request = [frame.bytes for frame in frames]
        admitted = admits(request[2:], self._key)
        self.refused += not admitted
        verdict = (b"200", b"OK") if admitted else (b"400", b"wrong key")
        self._channel.send([request[0], b"", b"1.0", *request[3:4], *verdict, b"", b""])


def admits(request: Sequence[bytes], key: bytes) -> bool:
    """Whether a ZAP request (version, id, domain, address, identity, mechanism, credentials...) shows `key`."""
    return len(request) == 7 and (request[0], request[2], request[5], request[6]) == (b"1.0", DOMAIN, b"CURVE", key)


def _bound(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """The socket that libzmq asks."""
    server = context.socket(zmq.ROUTER)
    server.setsockopt(zmq.LINGER, 0)
    server.bind(_ENDPOINT)
    return server
