"""The shell around the leases, in virtual time: two nodes wired to each other."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from p2p.agent.finished import Finished
from p2p.agent.leases import Leases
from p2p.agent.work import Works
from p2p.config import WorkConfig
from p2p.net.messages import Message, Work
from p2p.sim.clock import run


class Peer:
    """One node's works, with a timer, and a wire of 10 ms to the other."""

    def __init__(self, node: str, peers: dict[str, Peer]) -> None:
        self.node, self.peers = node, peers
        self.timer: asyncio.TimerHandle | None = None
        self.works = Works(node, WorkConfig(), random.Random(node), 1 << 20, self.send, self.arm)
        peers[node] = self

    def send(self, node: str, message: Message) -> None:
        assert isinstance(message, Work)
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, lambda: self.peers[node].works.handle(self.node, message, loop.time()))

    def arm(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.works.wake < math.inf:
            self.timer = asyncio.get_running_loop().call_at(self.works.wake, self.tick)

    def tick(self) -> None:
        self.works.tick(asyncio.get_running_loop().time())
        self.arm()

    async def work(self, leases: Leases, epoch: int, pace: float = 0.05) -> list[int]:
        """One pass over the epoch."""
        await self.works.begin(leases, epoch)
        found = []
        while (chunk := await self.works.take(leases)) is not None:
            await asyncio.sleep(pace)
            self.works.progress(leases, 16, [chunk])
            found.append(chunk)
        return found


def pair(program: Callable[[Peer, Peer], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        peers: dict[str, Peer] = {}
        a, b = Peer("a", peers), Peer("b", peers)
        for peer in (a, b):
            peer.works.seat("ab", 0.0)
        await program(a, b)

    run(main())


def test_two_share_an_epoch() -> None:
    async def program(a: Peer, b: Peer) -> None:
        first, second = [await peer.works.open(40, 16) for peer in (a, b)]
        await asyncio.gather(a.works.sync(first), b.works.sync(second))
        assert asyncio.get_running_loop().time() < 0.1  # an answer ends the wait
        shares = await asyncio.gather(a.work(first, 0), b.work(second, 0))
        assert sorted(shares[0] + shares[1]) == list(range(40))
        assert abs(len(shares[0]) - len(shares[1])) <= 2
        await asyncio.sleep(0.5)
        assert first.complete(0) and second.complete(0)
        assert await a.works.current() == 1

    pair(program)


def test_nobody_who_answers_is_waited_for_a_second() -> None:
    async def program(a: Peer, b: Peer) -> None:
        leases = await a.works.open(40, 16)  # b has no such data set
        await a.works.sync(leases)
        assert asyncio.get_running_loop().time() == pytest.approx(1.0)

    pair(program)


def test_the_end_waits_for_the_other_and_takes_up_what_it_leaves() -> None:
    async def program(a: Peer, b: Peer) -> None:
        first, second = [await peer.works.open(4, 16) for peer in (a, b)]
        await b.works.begin(second, 0)
        taken = await b.works.take(second)
        await asyncio.sleep(0.2)
        done = await a.work(first, 0)
        assert taken not in done
        waiting = asyncio.ensure_future(a.works.more(0))
        await asyncio.sleep(5.0)
        assert not waiting.done()
        a.works.seat("a", asyncio.get_running_loop().time())  # b is dead
        assert await waiting
        assert taken in await a.work(first, 0)
        assert not await a.works.more(0)

    pair(program)


def test_another_cut_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def program(a: Peer, b: Peer) -> None:
        first, second = await a.works.open(40, 16), await b.works.open(41, 16)
        await asyncio.gather(a.work(first, 0), b.work(second, 0))

    with caplog.at_level(logging.WARNING, "starlings"):
        pair(program)
    assert sorted(record.message for record in caplog.records) == [
        "node a cuts data set 0 into 40 chunks, this node into 41: they don't share it",
        "node b cuts data set 0 into 41 chunks, this node into 40: they don't share it",
    ]


def test_data_sets_are_told_apart() -> None:
    async def program(a: Peer, b: Peer) -> None:
        for chunks in (10, 20):
            for peer in (a, b):
                await peer.works.open(chunks, 16)
        await a.works.restore(a.works.all[1], Finished(7), [])
        await asyncio.sleep(0.1)
        a.tick()
        await asyncio.sleep(0.1)
        assert [leases.finished.floor for leases in b.works.all] == [0, 7]
        copy = await b.works.finished(b.works.all[1])
        copy.add(7)
        assert b.works.all[1].finished.floor == 7

    pair(program)


def test_who_rests_leaves_its_work_to_the_other() -> None:
    async def program(a: Peer, b: Peer) -> None:
        first, second = [await peer.works.open(6, 16) for peer in (a, b)]
        await b.works.begin(second, 0)
        assert await b.works.take(second) is not None
        await b.works.rest()
        await asyncio.sleep(0.3)
        assert sorted(await a.work(first, 0)) == list(range(6))

    pair(program)
