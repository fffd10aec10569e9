"""The trainer's side of a data set's leases: plain calls that run on the agent's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from p2p.agent.finished import Finished
from p2p.agent.leases import Leases
from p2p.agent.work import Works

T = TypeVar("T")


class Caller(Protocol):
    """Runs a coroutine on the agent's loop and waits for it; `LoopThread` is one."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    def call(self, coroutine: Coroutine[Any, Any, T]) -> T: ...


class AgentDesk:
    """See p2p.data.Desk. `ready` is called before the first chunk of a pass: it waits for the members that are expected."""

    def __init__(self, caller: Caller, works: Works, leases: Leases, ready: Callable[[], None]) -> None:
        self._caller, self._works, self._leases, self._ready = caller, works, leases, ready

    def open(self) -> None:
        self._ready()
        self._caller.call(self._works.sync(self._leases))

    def begin(self, epoch: int) -> None:
        self._caller.call(self._works.begin(self._leases, epoch))

    def take(self) -> int | None:
        return self._caller.call(self._works.take(self._leases))

    def progress(self, samples: int, chunks: Sequence[int]) -> None:
        """Doesn't wait: it is called at every step."""
        self._caller.loop.call_soon_threadsafe(self._works.progress, self._leases, samples, chunks)

    def release(self, chunks: Sequence[int]) -> None:
        self._caller.call(self._works.release(self._leases, chunks))

    def restore(self, finished: Finished, begun: Sequence[int]) -> None:
        self._caller.call(self._works.restore(self._leases, finished, begun))

    def finished(self) -> Finished:
        return self._caller.call(self._works.finished(self._leases))

    def share(self) -> float:
        return self._leases.share
