"""The stepper: `Agent.prepare` and `Agent.step` for a trainer in its own thread; only the waiting is on the agent's loop."""

from __future__ import annotations

import time
from collections.abc import Callable

from p2p.agent.agent import Agent
from p2p.feed import Feed
from p2p.handover import Handover
from p2p.notice import notice
from p2p.report import EventLog, StepReport
from p2p.saving import Saving
from p2p.state import Method
from p2p.thread import LoopThread


class Stepper:
    """Steps are timed from one to the next, in the event log."""

    def __init__(
        self,
        thread: LoopThread,
        agent: Agent,
        method: Method,
        saving: Saving,
        feed: Feed,
        handover: Handover,
        events: EventLog,
    ) -> None:
        self._thread, self._agent, self._method = thread, agent, method
        self._saving, self._feed, self._handover = saving, feed, handover
        self._events = events
        self._stepped = time.monotonic()
        self.midway = False
        """Whether a step is under way: what there is then is no state to keep."""

    def begin(self) -> None:
        """The others are here: the first step's time counts from now."""
        self._stepped = time.monotonic()

    def prepare(self) -> None:
        """What precedes a local update. Once the node is told to end, what is held waits: each step may be the last."""
        self.midway = True
        if not notice.ending:
            self._saving.write()
        self._agent.before()
        if self._agent.early:
            self._exchange()

    def step(self, state: Callable[[StepReport], dict[str, object]]) -> None:
        """What follows a local update; `state` is what a checkpoint holds of the swarm and of the work."""
        self._feed.stepped()
        if self._agent.outdated and (offer := self._thread.call(self._agent.reenter())):
            self._handover.take(offer)  # this step's update is overwritten: there is nothing of it to exchange
        elif not self._agent.early:
            self._exchange()
        report = self._agent.settle()
        self._saving.stepped()
        if self._saving.due(report.step, last=notice.ending):
            self._saving.hold(report.step, self._method, state(report))
        self.midway = False
        now = time.monotonic()
        self._events.step(report, now - self._stepped)
        self._stepped = now

    def last(self, state: Callable[[StepReport], dict[str, object]]) -> None:
        """The node was told to end: the last whole step is kept, as far as it still can be."""
        report = self._agent.report
        self._saving.rest()
        if report is not None and not self.midway and self._saving.due(report.step, last=True):
            self._saving.hold(report.step, self._method, state(report))

    def _exchange(self) -> None:
        """`Agent.step`'s exchange."""
        self._agent.offer()
        self._wait()
        while self._agent.join_in():
            self._wait()

    def _wait(self) -> None:
        if self._agent.waits:
            self._thread.call(self._agent.arrivals())
