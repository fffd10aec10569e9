"""Counts what a node sends: messages and bytes, by taking the place of its transport's `send`."""

from __future__ import annotations

from typing import Any


class Counting:
    """What was sent since the last `reset`; messages that found no room don't count."""

    def __init__(self, transport: Any) -> None:
        self._send = transport.send
        transport.send = self._counted
        self.reset()

    def reset(self) -> None:
        self.messages = self.bytes = 0

    def _counted(self, route: Any, header: bytes, payload: memoryview | None = None) -> Any:
        sent = self._send(route, header, payload)
        if sent is not None:
            self.messages += 1
            self.bytes += len(header) + (payload.nbytes if payload is not None else 0)
        return sent
