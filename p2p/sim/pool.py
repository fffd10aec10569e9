"""Several runs at once, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext

from p2p.sim.scenario import Scenario
from p2p.sim.trial import Look, Result, simulate

SHOWN = 0.1
"""Seconds between two looks that a process tells of."""

CLOSE = 2.0
"""Seconds that a process has to end by itself."""

Watcher = Callable[[Scenario, Look], bool]
"""Shown what runs have come to, now and then; True lets all of them end there."""


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def simulate_all(scenarios: Sequence[Scenario], watcher: Watcher = lambda scenario, look: False, jobs: int = 0) -> list[Result]:
    """The results in order, `jobs` (0: one per core) at a time; without those that were not begun when the watcher had enough.

    Raises the first error of any run.
    """
    jobs = min(jobs or cores(), len(scenarios))
    return _at_once(scenarios, watcher, jobs) if jobs > 1 else _in_turn(scenarios, watcher)


def _in_turn(scenarios: Sequence[Scenario], watcher: Watcher) -> list[Result]:
    results: list[Result] = []
    for scenario in scenarios:
        results.append(simulate(scenario, partial(watcher, scenario)))
        if not results[-1].complete:
            break
    return results


def _at_once(scenarios: Sequence[Scenario], watcher: Watcher, jobs: int) -> list[Result]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["p2p.sim.trial"])
    waiting, running = [*enumerate(scenarios)][::-1], dict[Connection, Child]()
    done: dict[int, Result] = {}
    enough = False
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                child = Child(context, *waiting.pop())
                running[child.connection] = child
            for ready in wait([*running]):
                assert isinstance(ready, Connection)
                child = running[ready]
                news = child.news()
                if isinstance(news, Result):
                    done[child.number] = news
                    running.pop(ready).close()
                elif watcher(child.scenario, news) and not enough:
                    enough = True
                    waiting.clear()
                    for other in running.values():
                        other.end()
    finally:
        for child in running.values():
            child.close()
    return [done[number] for number in sorted(done)]


class Child:
    """One run in a process."""

    def __init__(self, context: ForkServerContext, number: int, scenario: Scenario) -> None:
        self.number = number
        self.scenario = scenario
        self.connection, far = context.Pipe()
        self._process = context.Process(target=_run, args=(far, scenario), daemon=True)
        self._process.start()
        far.close()

    def news(self) -> Look | Result:
        """What it tells next; its error is raised."""
        try:
            news: Look | Result | Exception = self.connection.recv()
        except EOFError:
            raise RuntimeError(
                f"the process that simulated {self.scenario.choice}, seed {self.scenario.seed}, has died"
            ) from None
        if isinstance(news, Exception):
            raise news
        return news

    def end(self) -> None:
        """Let it end soon, with what it has come to."""
        with suppress(OSError):  # its result is on the way already
            self.connection.send(True)

    def close(self) -> None:
        """It has ended, or is made to."""
        self.connection.close()
        self._process.join(CLOSE)
        self._process.kill()
        self._process.join()
        self._process.close()


def _run(connection: Connection, scenario: Scenario) -> None:
    """In the new process: tells of looks, ends with the result or the error; any word from the other side ends it sooner."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this decides
    told = time.monotonic()

    def watch(look: Look) -> bool:
        nonlocal told
        if time.monotonic() - told > SHOWN:
            told = time.monotonic()
            connection.send(look)
        return connection.poll()

    try:
        connection.send(simulate(scenario, watch))
    except (BrokenPipeError, ConnectionResetError, EOFError):
        return
    except Exception as error:  # whatever it is, the other side raises it
        connection.send(error)
