"""The agent's thread: an event loop beside the trainer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeVar

from p2p.errors import ClosedError

T = TypeVar("T")

LOOK = 1.0
"""Seconds after which a waiting caller looks again whether the loop still runs."""


class LoopThread:
    """Runs one event loop until `stop`. A daemon: a trainer that never leaves doesn't hang at its exit."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop and wait for its result; an interrupt of the waiting cancels it.

        Raises ClosedError where the loop has ended, or ends meanwhile.
        """
        if not self._thread.is_alive():
            coroutine.close()
            raise ClosedError("the node has left the swarm")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return self._result(future)
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and its thread; a second call does nothing."""
        with suppress(RuntimeError):  # closed already
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)

    def _result(self, future: Future[T]) -> T:
        while not future.done() and self._thread.is_alive():
            wait([future], LOOK)
        if not future.done() or future.cancelled():
            raise ClosedError("the node has left the swarm")
        return future.result()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            pending = asyncio.all_tasks(self.loop)
            for task in pending:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self.loop.close()


async def soon(function: Any, *args: Any) -> None:
    """Call a plain function on the loop."""
    function(*args)
