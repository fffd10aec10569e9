"""The reporter: what one step exchanged, how long it waited, and how often blocks are mixed, as a StepReport."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from p2p.agent.activity import Activity
from p2p.agent.records import LIVE
from p2p.net.keys import short
from p2p.report import StepReport

if TYPE_CHECKING:
    from p2p.agent.agent import Agent

log = logging.getLogger("starlings")

MATERIAL = 2.0
"""The log says so again once the interval is this much longer than when it last did."""
STALE_MIXING = 3.0
"""Steps between two exchanges of one block beyond which label-sorted data is learned slowly, and the log says so."""


class Reporter:
    """One agent's, told of each step as it goes."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._offered = 0.0
        self._waited = 0.0
        self._totals = (0, 0)
        self._mixing = (0, 0.0)  # step and mean round when the mixing interval was last looked at
        self._interval = 0.0
        self._said = 0.0  # the interval that the log last complained of; 0 where all is well

    def resumed(self) -> None:
        """The node goes on from a state of others, or of a checkpoint: the mixing interval counts from here."""
        assert self._agent.exchange is not None
        self._mixing = (self._agent.step_count, self._agent.exchange.mean_round)

    def offered(self) -> None:
        """Trainer and agent have met."""
        self._offered = self._waited = self._agent.loop.time()

    def arrived(self) -> None:
        """What the step needs of others is there."""
        self._waited = self._agent.loop.time()

    def report(self) -> StepReport:
        """Of the step that is over; the next one's activity is counted anew."""
        agent, exchange = self._agent, self._agent.exchange
        assert exchange is not None
        activity, exchange.activity = exchange.activity, Activity()
        sent, received = agent.post.sent, agent.post.received
        before, self._totals = self._totals, (sent, received)
        distance = activity.distance()
        return StepReport(
            step=agent.step_count,
            round=exchange.round,
            partners=tuple(sorted(short(p) for p in activity.partners)),
            sent=sent - before[0],
            received=received - before[1],
            staleness=activity.staleness(agent.step_count),
            wait=self._waited - self._offered,
            distance=distance if distance is not None else (agent.report.distance if agent.report else 0.0),
            skipped=tuple(sorted(map(short, activity.skipped))),
            slow=tuple(sorted(map(short, exchange.slow(agent.loop.time())))),
            mixing_interval=self._mixing_interval(),
            far=tuple(sorted(map(short, exchange.far))),
            rate=agent.task.method.rate if agent.task is not None else 0.0,
        )

    def _mixing_interval(self) -> float:
        """Steps between two own exchanges of one block, looked at every 20 steps."""
        agent, exchange = self._agent, self._agent.exchange
        assert exchange is not None
        step, rounds = self._mixing
        if agent.step_count - step >= 20:
            now = exchange.mean_round
            self._interval = (agent.step_count - step) / max(now - rounds, 1e-9) if len(agent.view) > 1 else 0.0
            self._mixing = (agent.step_count, now)
            self._complain()
        return self._interval

    def _complain(self) -> None:
        """Once while it lasts, and again where it became much worse; who hovers about the limit isn't told each time."""
        limit = STALE_MIXING * self._wanted_interval()
        if self._interval < limit / MATERIAL:
            self._said = 0.0
        elif max(limit, MATERIAL * self._said) < self._interval < 1e6:
            self._said = self._interval
            log.warning(
                "a block is exchanged every %.1f steps only: label-sorted data is learned slowly over such links",
                self._interval,
            )

    def _wanted_interval(self) -> int:
        """Steps between two exchanges, by the algorithm."""
        assert self._agent.task is not None
        algorithm = self._agent.task.algorithm
        return algorithm.interval(self._agent.step_count) * algorithm.parts


def progress(agent: Agent) -> float:
    """The swarm-wide step: the mean of the live members' as last heard; the own one after leaving."""
    members = agent.membership.members if agent.membership is not None else {}
    live = [info for node, info in members.items() if info.state in LIVE and node != agent.node]
    steps = [info.pulse.step for info in live if info.pulse.step]
    return (agent.step_count + sum(steps)) / (1 + len(steps))
