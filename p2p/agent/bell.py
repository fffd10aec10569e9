"""The bell: how the trainer's thread tells the agent's loop of its steps."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from p2p.errors import ClosedError


class Bell:
    """Each step is heard once, in order, with its own time; short ones several at once.

    To wake a sleeping loop takes the trainer a system call, and the interpreter from it for a while: some tens of
    microseconds, more than all the rest of a short step's hook on a busy machine.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, heard: Callable[[int, float], None]) -> None:
        self._loop = loop
        self._heard = heard
        self._steps: deque[tuple[int, float]] = deque()
        self._rung = -1e9

    def ring(self, step: int, now: float, patience: float) -> None:
        """The trainer finished a step; the loop is woken unless it was, less than `patience` seconds ago.

        Raises ClosedError where the loop has ended.
        """
        self._steps.append((step, now))
        try:
            if now - self._rung >= patience or self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.answer)
                self._rung = now
        except RuntimeError:  # closed: another thread left meanwhile
            raise ClosedError("the node has left the swarm") from None

    def answer(self) -> None:
        """On the loop: hear of the steps since the last time."""
        while self._steps:
            self._heard(*self._steps.popleft())
