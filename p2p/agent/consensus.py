"""The end of training: exchanges go on without local updates, until all models are one to a tolerance."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from p2p.agent.activity import Activity
from p2p.net.messages import Phase

if TYPE_CHECKING:
    from p2p.agent.agent import Agent

LOOK = 0.02
"""Seconds between two looks at how far the others are."""


@dataclass(frozen=True, slots=True)
class Consensus:
    """How it ended. `distance`: root mean square difference to the last partners; `missing`: short ids of who still trains."""

    done: bool
    distance: float
    missing: tuple[str, ...]
    seconds: float


async def consensus(agent: Agent, tolerance: float, timeout: float) -> Consensus:
    """Arrive, wait for the others, and exchange until everybody's models differ by less than `tolerance`.

    `tolerance`: root mean square difference per parameter. Returns when all live members are done, or after `timeout`
    seconds with the state that there is then; who still trains is not stopped.
    """
    began = agent.loop.time()
    assert agent.exchange is not None
    agent.announce(Phase.ARRIVED)
    agent.exchange.training = False
    _meet(agent)
    hastened = done = False
    distance = agent.report.distance if agent.report else 0.0
    while not done and agent.loop.time() - began < timeout:
        await _exchange(agent, began + timeout)
        distance = _distance(agent, distance)
        if not hastened and _all_in(agent, Phase.ARRIVED):
            hastened = True
            agent.exchange.hasten()
            agent.exchange.calm.begin(tolerance**2)
        if hastened and _own_phase(agent) < Phase.DONE and _calm(agent):
            agent.announce(Phase.DONE)
        done = _all_in(agent, Phase.DONE)
    _meet(agent)
    return Consensus(done, distance, _missing(agent), agent.loop.time() - began)


def _meet(agent: Agent) -> None:
    """What changed in the model since the last step joins the swaps, what they brought joins the model."""
    if not agent.waits and agent.exchange is not None:
        agent.exchange.offer(agent.step_count)


async def _exchange(agent: Agent, deadline: float) -> None:
    """Let exchanges go on for a moment; where all take part in rounds, that is one round."""
    if not agent.waits or len(agent.view) < 2:
        await asyncio.sleep(LOOK)
        return
    assert agent.exchange is not None
    agent.exchange.offer(agent.step_count)
    arrivals = asyncio.ensure_future(agent.exchange.arrivals())
    try:
        while not arrivals.done() and not _all_in(agent, Phase.DONE) and agent.loop.time() < deadline:
            await asyncio.wait([arrivals], timeout=LOOK)
    finally:
        arrivals.cancel()  # the last ones do not come: who is done may have stopped
    if arrivals.done():
        agent.exchange.settle()
    await asyncio.sleep(0)


def _calm(agent: Agent) -> bool:
    """Whether the last ceil(log2 n) exchanges of each block were within the tolerance."""
    assert agent.exchange is not None
    return agent.exchange.calm.exchanges >= math.ceil(math.log2(max(len(agent.view), 1)))


def _all_in(agent: Agent, phase: Phase) -> bool:
    """Whether every live member is at least so far."""
    assert agent.membership is not None
    members = agent.membership.members
    return all(members[m.id].record.phase >= phase for m in agent.view.members)


def _own_phase(agent: Agent) -> int:
    assert agent.membership is not None
    return agent.membership.record.phase


def _missing(agent: Agent) -> tuple[str, ...]:
    assert agent.membership is not None
    members = agent.membership.members
    return tuple(m.id[:10] for m in agent.view.members if members[m.id].record.phase < Phase.ARRIVED)


def _distance(agent: Agent, before: float) -> float:
    """Of the exchanges since the last look."""
    assert agent.exchange is not None
    distance = agent.exchange.activity.distance()
    agent.exchange.activity = Activity()
    return before if distance is None else distance
