"""The watch over a simulation: an error anywhere in it ends it, and whoever waits for its end looks again at each change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Watch:
    """Over all tasks and callbacks of one run."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []
        self._enough = False
        self._changed: asyncio.Event

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing that a callback on this loop raises is passed over."""
        self._changed = asyncio.Event()
        loop.set_exception_handler(self._failed)

    def stop(self) -> None:
        """Let the training end here."""
        self._enough = True
        self.changed()

    def changed(self) -> None:
        """Whoever waits should look again."""
        self._changed.set()

    def ended(self, task: asyncio.Task[None]) -> None:
        """To be called when a task of the run is over."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.append(error)
        self.changed()

    async def over(self, busy: Callable[[], bool], seconds: float | None) -> None:
        """Wait until nobody is `busy`, for so many virtual seconds at most, or until `stop`. Raises as `check` does."""
        try:
            async with asyncio.timeout(seconds):
                while not self._enough and busy():
                    self._changed.clear()
                    await self._changed.wait()
                    self.check()
        except TimeoutError:
            pass

    def check(self) -> None:
        """Raise the run's first error."""
        if self._errors:
            raise self._errors[0]

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._errors.append(context.get("exception") or RuntimeError(context["message"]))
        self.changed()
