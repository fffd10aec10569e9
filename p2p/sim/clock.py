"""Virtual time: an asyncio event loop that jumps to its next timer instead of sleeping, and processes that stop and die in it.

Callbacks run in the order in which they fell due, timers of one moment in the order in which they were set, so a program
that takes its randomness from seeds runs the same way each time. The loop opens no file and starts no thread.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio.events import Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from enum import Enum, auto
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

COMPACT_FROM = 256
"""Cancelled timers are swept out once there are so many, and they are the greater half."""


STANDSTILL = 20_000
"""Rounds of the loop within one moment, after which somebody is taken to be waking himself again and again."""


class Livelock(RuntimeError):
    """Callbacks follow each other and time does not go on."""


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set: whatever is awaited will never come."""


class State(Enum):
    RUNNING = auto()
    STOPPED = auto()
    KILLED = auto()


class Process:
    """All that one simulated node runs: its tasks, their callbacks and timers, and the messages delivered to it.

    `stop` and `resume` act like SIGSTOP and SIGCONT (what falls due meanwhile runs at the end, in order), `kill` like
    SIGKILL (nothing of it runs again, no `finally` either, until the loop itself shuts down).
    """

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.state = State.RUNNING
        self.stopped = 0.0  # seconds, all stops that are over
        self._loop = loop
        self._since = 0.0
        self._held: list[Handle] = []
        self._context = copy_context()
        self._context.run(_process.set, self)
        loop.processes.append(self)

    def spawn(self, program: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of this process; all that it starts belongs to the process too."""
        return self._loop.create_task(program, name=self.name, context=self._context.copy())

    def stop(self) -> None:
        if self.state is State.RUNNING:
            self._since = self._loop.time()
            self._change(State.STOPPED)

    def resume(self) -> None:
        if self.state is State.STOPPED:
            self.stopped += self._loop.time() - self._since
            self.release()

    def kill(self) -> None:
        self._change(State.KILLED)

    def release(self) -> None:
        """Let it run, whatever it was."""
        self._change(State.RUNNING)
        self._loop.requeue(self._held)
        self._held = []

    def hold(self, handle: Handle) -> bool:
        """Keep `handle`, due now, if it must not run now."""
        if self.state is State.RUNNING:
            return False
        self._held.append(handle)
        return True

    def _change(self, state: State) -> None:
        self._loop.halted += (state is not State.RUNNING) - (self.state is not State.RUNNING)
        self.state = state


_process: ContextVar[Process | None] = ContextVar("process", default=None)


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop; time begins at 0. `Deadlock` is where a real loop would wait forever, `Livelock` where it would spin."""

    _ready: deque[Handle]  # BaseEventLoop's queue of what runs next
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process] = []
        self.halted = 0  # processes that are stopped or killed
        self._now = 0.0
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._order = count()
        self._cancelled = 0
        self._rounds = 0  # of the loop, since time went on

    def time(self) -> float:
        return self._now

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> TimerHandle:
        timer = TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def requeue(self, handles: list[Handle]) -> None:
        """Run these next, in order."""
        self._ready.extend(handles)

    def release(self) -> None:
        """Set every process running, so that its tasks can be cancelled."""
        for process in self.processes:
            process.release()

    def close(self) -> None:
        super().close()
        self._timers.clear()

    def _run_once(self) -> None:
        ready = self._ready
        if not ready and not self._stopping:
            self._advance()
        self._rounds += 1
        if self._rounds > STANDSTILL:
            raise Livelock(f"time stands still at {self._now:g} s; next to run: {', '.join(map(repr, list(ready)[:4]))}")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not (handle.cancelled() or (self.halted and self._holds(handle))):
                handle._run()

    def _advance(self) -> None:
        """Go to the moment of the next timer, and make all timers of that moment ready."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self._cancelled -= 1
        if not timers:
            raise Deadlock(self._waiting())
        if timers[0][0] > self._now:
            self._now, self._rounds = timers[0][0], 0
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)

    def _holds(self, handle: Handle) -> bool:
        process: Process | None = handle._context.get(_process)  # type: ignore[attr-defined]
        return process is not None and process.hold(handle)

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Called by `TimerHandle.cancel`."""
        self._cancelled += handle._scheduled  # type: ignore[attr-defined]
        if self._cancelled > COMPACT_FROM and self._cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _write_to_self(self) -> None:
        """Called by `call_soon_threadsafe` to wake a loop that sleeps; this one never does."""

    def _waiting(self) -> str:
        tasks = asyncio.all_tasks(self)
        waiting = sorted({f"{task.get_name()} in {getattr(task.get_coro(), '__qualname__', '?')}" for task in tasks})
        named = "; ".join(waiting[:8]) + (f" and {len(waiting) - 8} more" if len(waiting) > 8 else "")
        return f"at {self._now:g} s nothing is ready and no timer is set, still waiting: {named or 'nobody'}"


def run(main: Coroutine[Any, Any, T], loop: VirtualLoop | None = None) -> T:
    """`asyncio.run` in virtual time. Tasks left over are cancelled at the end, those of stopped and killed processes too."""
    loop = loop or VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            return runner.run(main)
        finally:
            loop.release()
