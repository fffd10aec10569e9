"""Back again: a node that the others had given up looks how far behind it is before it exchanges anything.

Its model may be minutes old, and half of it would be mixed into everybody's. Far behind, it takes a member's state, as a joiner
does; otherwise, as after a partition, it goes on at once.
"""

from __future__ import annotations

import asyncio
import logging
from statistics import median
from typing import TYPE_CHECKING

from p2p.errors import JoinError
from p2p.net.messages import Phase, SnapshotOffer, Status, StatusRequest

if TYPE_CHECKING:
    from p2p.agent.agent import Agent

log = logging.getLogger("starlings")

ASKED = 3
"""So many members are asked how far they are."""
ANSWER = 2.0
"""Seconds that they have to answer."""


async def look(agent: Agent, reason: str) -> None:
    """Sets `agent.outdated` if the others are more than `JoinConfig.lag` steps ahead; else exchanges go on."""
    assert agent.membership is not None
    others = [member.id for member in agent.membership.view.members if member.id != agent.node]
    chosen = others[:: max(1, len(others) // ASKED)][:ASKED]
    steps = [step for step in await asyncio.gather(*(_step_of(agent, node) for node in chosen)) if step is not None]
    behind = round(median(steps)) - agent.step_count if steps else 0
    agent.outdated = behind > agent.config.join.lag
    agent.events.write("back", reason=reason, behind=behind, outdated=agent.outdated)
    then = "takes a member's state at its next step" if agent.outdated else "goes on"
    log.warning("this node was away (%s): it is %d steps behind and %s", reason, behind, then)
    if not agent.outdated:
        agent.rejoined()


async def reenter(agent: Agent) -> SnapshotOffer | None:
    """Pull a member's state, which the trainer then applies before it calls `ready`; None where none was to be had."""
    assert agent.task is not None
    agent.announce(Phase.JOINING)
    agent.rejoined()
    try:
        return await agent.pull_from_any(agent.task.shards)
    except JoinError as error:
        log.warning("%s; this node goes on from its own", error)
        agent.arrived()
        agent.announce(Phase.TRAINING)
        return None


async def _step_of(agent: Agent, node: str) -> int | None:
    route = agent.post.route(node)
    try:
        answer = await agent.requests.ask(route, StatusRequest(), ANSWER) if route is not None else None
    except JoinError:
        return None
    return answer.step if isinstance(answer, Status) else None
