"""The mean of all live members' models: their snapshots are pulled one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from p2p.agent.transfer import BusyError
from p2p.errors import JoinError
from p2p.state import Mean

if TYPE_CHECKING:
    from p2p.agent.agent import Agent

log = logging.getLogger("starlings")


async def pull_all(agent: Agent, mean: Mean) -> None:
    """Add every live member's model to the mean. Who is silent past the deadline is left out; who is busy gets another turn."""
    waiting = deque(_others(agent))
    deadline = agent.loop.time() + agent.config.join.timeout
    while waiting:
        node = waiting.popleft()
        try:
            if node in agent.view:
                await agent.pull(node, lambda index, data, codec, step: mean.put(index, data, codec), mean.blocks)
        except BusyError:
            if agent.loop.time() < deadline:
                waiting.append(node)
                await asyncio.sleep(agent.config.join.back_off)
        except JoinError as error:
            log.warning("left out of the average: %s", error)
        mean.close()


def _others(agent: Agent) -> list[str]:
    """From the own place in the view onwards, so that not all who average at once ask the same member first."""
    ids = [member.id for member in agent.view.members]
    place = ids.index(agent.node)
    return ids[place + 1 :] + ids[:place]
