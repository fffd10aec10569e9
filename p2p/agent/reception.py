"""The other side of the entrance: knocks, hellos and questions from outside are answered here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from p2p.agent import terms
from p2p.agent.instructions import Instruction
from p2p.agent.links import Link
from p2p.agent.membership import Membership
from p2p.agent.post import Post
from p2p.agent.records import MemberInfo
from p2p.net.messages import PROTOCOL, Hello, LinkStatus, MemberStatus, News, Pulse, SpanStatus, Status, Terms, Welcome
from p2p.net.transport import Route
from topology import Span

if TYPE_CHECKING:
    from p2p.agent.agent import Agent
    from p2p.agent.participant import Task

MOST = 1000
"""Members, links and pairs of sites that one answer holds: a header has a bound."""


class Reception:
    """Answers by the connection on which the question came."""

    def __init__(self, post: Post, task: Task, membership: Membership) -> None:
        self._post = post
        self._task = task
        self._membership = membership

    def knock(self, route: Route, members: int, others: Sequence[str]) -> None:
        """On what terms, and at which other addresses."""
        self._post.answer(route, Terms(PROTOCOL, self._task.contract, self._membership.record, members, tuple(others)))

    def hello(self, route: Route, hello: Hello, now: float) -> list[Instruction]:
        """A joiner under the same contract is introduced to everybody; another one is told what differs."""
        refusal = terms.objection(self._task.contract, hello.contract, self._task.shards.schema)
        if refusal is not None:
            self._post.answer(route, refusal)
            return []
        news = self._membership.news()
        instructions = self._membership.meet(News((hello.record,)), now)
        self._post.answer(route, Welcome(news))
        return instructions

    def status(self, route: Route, agent: Agent) -> None:
        """What this node knows."""
        self._post.answer(route, status_of(agent))


def status_of(agent: Agent) -> Status:
    """A node's view of the swarm and of its own links."""
    assert agent.membership is not None and agent.exchange is not None and agent.task is not None
    members = tuple(
        _member(node, info, agent.exchange.pace.pulse if node == agent.node else info.pulse)
        for node, info in sorted(agent.membership.members.items())
    )
    now = agent.loop.time()
    links = tuple(
        _link(node, link, agent.membership.chart.figure(node, agent.node).bandwidth, now)
        for node, link in sorted(agent.exchange.links.items())
    )
    contract, report = agent.task.contract, agent.report
    distance = report.distance if report else 0.0
    spans = tuple(_span(span) for span in agent.membership.chart.spans[:MOST])
    return Status(contract.topology, contract.algorithm, agent.step_count, distance, members[:MOST], links[:MOST], spans)


def _link(node: str, link: Link, back: float, now: float) -> LinkStatus:
    return LinkStatus(
        node, link.round_trip, link.bandwidth, back, link.queueing, link.credit, link.sent, link.received, link.paused(now)
    )


def _span(span: Span) -> SpanStatus:
    figure = span.figure
    return SpanStatus(span.source, span.target, figure.round_trip, figure.bandwidth, figure.queueing, span.links)


def _member(node: str, info: MemberInfo, pulse: Pulse) -> MemberStatus:
    record = info.record
    return MemberStatus(
        node, record.control, str(info.state), record.phase, record.site, record.dial_only, pulse.step, pulse.pace
    )
