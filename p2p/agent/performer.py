"""The performer: does what the membership machine says, and tells people of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from p2p.agent.instructions import Changed, Instruction, Refused, Returned, Send
from p2p.agent.records import LIVE
from p2p.net.keys import short

if TYPE_CHECKING:
    from p2p.agent.agent import Agent

log = logging.getLogger("starlings")

CALL = 10.0
"""Seconds that a dead node has to answer a call: to take the connection, and to shake hands."""

REFUSED = {
    "contract": "it belongs to a swarm that trains something else (model, optimizer, algorithm, topology or seed)",
    "incarnation": "its clock is more than a day ahead",
    "conflict": "a second process has this node's key",
}
"""Why news is not taken, in words."""


class Performer:
    """One agent's, for its event loop."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._called: set[str] = set()  # dead nodes with a connection open
        self._kept = agent.who.incarnation

    def perform(self, instructions: Sequence[Instruction]) -> None:
        """One after the other."""
        self._keep()
        for instruction in instructions:
            if isinstance(instruction, Send):
                self._tell(instruction)
            elif isinstance(instruction, Changed):
                self._note(instruction)
            elif isinstance(instruction, Returned):
                self._agent.returned(instruction.reason)
            elif isinstance(instruction, Refused):
                self._agent.metrics.add("news_refused", instruction.reason)
                log.warning(
                    "news from node %s refused: %s",
                    short(instruction.node),
                    REFUSED.get(instruction.reason, instruction.reason),
                )

    def _keep(self) -> None:
        """A new incarnation of this node is on its way to others."""
        membership = self._agent.membership
        if membership is not None and membership.record.incarnation > self._kept:
            self._kept = membership.record.incarnation
            self._agent.keep(self._kept)

    def _tell(self, instruction: Send) -> None:
        """The dead are called now and then, and not stayed connected to: every one would cost a socket, for good."""
        node = instruction.node
        self._agent.post.send(node, instruction.message)
        if node not in self._called and self._is_gone(node):
            self._called.add(node)
            self._agent.loop.call_later(CALL, self._hang_up, node)

    def _hang_up(self, node: str) -> None:
        self._called.discard(node)
        if self._is_gone(node):
            self._agent.post.hang_up(node)

    def _is_gone(self, node: str) -> bool:
        membership = self._agent.membership
        info = membership.members.get(node) if membership is not None else None
        return info is not None and info.state not in LIVE

    def _note(self, change: Changed) -> None:
        log.info("node %s %s: %s", short(change.node), change.event, change.reason)
        agent = self._agent
        agent.metrics.add("membership_events", change.event)
        before = str(change.before) if change.before else ""
        agent.events.write("member", node=short(change.node), before=before, after=str(change.after), reason=change.reason)
        if change.after not in LIVE:
            agent.post.hang_up(change.node)
        agent.changed.set()
