"""The seam between the agent and a network: `zeromq.py` is the world, `memory.py` a simulated one.

A transport moves whole messages (a header, perhaps one payload) and knows nothing of what they mean.
All calls are made on the agent's event loop and none of them blocks.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

Route = Hashable
"""Where a message goes: an opaque handle, from `Transport.dial` or from the arrival that it answers."""


class Sent(Protocol):
    """A message on its way out."""

    @property
    def done(self) -> bool:
        """True once the transport no longer reads the payload's memory, so that it may be reused."""


class Receiver(Protocol):
    """What a transport calls, on the event loop; neither call may raise or block."""

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        """A message came; an answer sent to `route` takes the same connection back.

        `payload` (read-only bytes) stays valid as long as a reference to it is kept.
        """

    def lost(self, route: Route, reason: str) -> None:
        """A dialled connection closed, or was refused; `reason` is a short phrase for people.

        The transport goes on redialling with back-off until `forget`; a hint, never a verdict.
        """


class Transport(Protocol):
    """Two bound endpoints (control, data: a probe must not queue behind a model) and the connections dialled from here."""

    @property
    def control(self) -> str:
        """The advertised control address, `tcp://host:port`: bound port, reachable host, never 0 or a wildcard."""

    @property
    def data(self) -> str:
        """The advertised data address."""

    async def start(self, receiver: Receiver) -> None:
        """Bind and begin to deliver. Raises `ListenError` where the port is in use or the address is not ours."""

    def dial(self, address: str) -> Route:
        """The route of a connection to `address`; the connection is opened on first use, and shared by later calls.

        Raises `JoinError` for what is no address, or may not be dialled.
        """

    def send(self, route: Route, header: bytes, payload: memoryview | None = None) -> Sent | None:
        """Queue one message, without copying `payload`; None where there is no room or the route is gone (nothing was sent)."""

    def forget(self, route: Route) -> None:
        """Close a dialled connection and drop what it has queued; unknown routes are ignored."""

    async def close(self) -> None:
        """Close everything within a second or two; a second call does nothing."""
