"""The way into a swarm, from outside: knock at every address, compare contracts, be welcomed. Needs no torch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from p2p.agent import terms
from p2p.agent.requests import Requests
from p2p.config import JoinConfig
from p2p.errors import ContractError, JoinError, SecretError
from p2p.net.messages import PROTOCOL, Hello, Knock, Phase, Refusal, Terms, Welcome
from p2p.net.transport import Route

if TYPE_CHECKING:
    from p2p.agent.agent import Agent
    from p2p.agent.participant import Task

ANSWER = 2.0
"""Seconds that a member has to answer before it is asked again."""
DOORS = 3
"""Members that may leave between knock and hello, one after the other."""


@dataclass(frozen=True, slots=True)
class Door:
    """A member that answered, and the swarm's terms."""

    address: str
    route: Route
    terms: Terms
    others: tuple[str, ...] = ()
    """Addresses to try where this member leaves meanwhile."""


class Entrance:
    """Knocks at all addresses at once, again and again with back-off, until one answers or the time is up."""

    def __init__(self, requests: Requests, config: JoinConfig) -> None:
        self._requests = requests
        self._config = config
        self._why: dict[str, JoinError] = {}  # per address, why not
        self._routes: dict[str, Route] = {}

    async def knock(self, addresses: Sequence[str]) -> Door:
        """The first that opens; the others are let go. Raises JoinError, which says per address why not."""
        tasks = [asyncio.ensure_future(self._insist(address)) for address in addresses]
        try:
            async with asyncio.timeout(self._config.timeout):
                for done in asyncio.as_completed(tasks):
                    if door := await done:
                        self._forget_but(door)
                        others = dict.fromkeys([*door.terms.others, *addresses])
                        return replace(door, others=tuple(a for a in others if a != door.address))
        except TimeoutError:
            pass
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        raise self._failure(addresses)

    async def _insist(self, address: str) -> Door | None:
        """Knock until somebody opens; None where no patience will help."""
        pause = self._config.back_off
        try:
            route = self._routes[address] = self._requests.dial(address)
        except JoinError as error:
            self._why[address] = error
            return None
        while True:
            try:
                return await self._once(address, route)
            except (SecretError, ContractError) as error:
                self._why[address] = error
                return None
            except JoinError as error:
                self._why[address] = error
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._config.back_off_max)

    async def _once(self, address: str, route: Route) -> Door:
        answer = await self._requests.ask(route, Knock(PROTOCOL), ANSWER)
        if isinstance(answer, Refusal):
            raise JoinError(f"{answer.reason}: {answer.theirs}")
        if not isinstance(answer, Terms):
            raise JoinError(f"an unexpected answer: {type(answer).__name__}")
        if answer.version != PROTOCOL:
            raise ContractError(f"it speaks protocol {answer.version}, this node {PROTOCOL}; use the same release on all nodes")
        return Door(address, route, answer)

    def _forget_but(self, door: Door) -> None:
        for route in self._routes.values():
            if route is not door.route:
                self._requests.forget(route)

    def _failure(self, addresses: Sequence[str]) -> JoinError:
        """One line: per address, why not. The kind of error that all share."""
        reasons = [f"{a}: {self._why.get(a, 'no answer')}" for a in addresses]
        kinds = {type(error) for error in self._why.values()} if len(self._why) == len(addresses) else {JoinError}
        kind = kinds.pop() if len(kinds) == 1 else JoinError
        return kind(
            f"no way into the swarm: {'; '.join(reasons)} (give the address of a running member, and its swarm's secret)"
        )


async def present(agent: Agent, task: Task, door: Door) -> None:
    """See Agent.present. A member that leaves between knock and hello is passed over: others that it named are there yet."""
    agent.enter(task, phase=Phase.JOINING)
    assert agent.membership is not None
    for _ in range(DOORS):
        try:
            welcome = await _hello(agent, task, door)
            break
        except JoinError as error:
            if isinstance(error, ContractError) or not door.others:
                raise
            door = await agent.knock(door.others)
    else:
        raise JoinError(f"{DOORS} members let this node knock, and left before they let it in")
    agent.perform(agent.membership.meet(welcome.news, agent.loop.time()))


async def _hello(agent: Agent, task: Task, door: Door) -> Welcome:
    assert agent.membership is not None
    answer = await agent.requests.ask(door.route, Hello(task.contract, agent.membership.record), agent.config.join.answer)
    if isinstance(answer, Refusal):
        raise terms.refused(answer, task.contract, task.shards.schema)
    if not isinstance(answer, Welcome):
        raise JoinError(f"{door.address}: an unexpected answer: {type(answer).__name__}")
    return answer
