"""The joiner's side: finds donors, the nearest and least loaded first, and pulls one state from them, each block verified."""

from __future__ import annotations

import asyncio
from bisect import bisect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from torch import Tensor

from optim.codec import RAW, Codec
from p2p.agent.bundles import bundles
from p2p.agent.donors import Candidate, ranked
from p2p.agent.download import Download
from p2p.agent.records import LIVE
from p2p.agent.swapper import Swapper
from p2p.config import MIB
from p2p.errors import JoinError, WireError
from p2p.net import keys
from p2p.net.messages import (
    BlocksRequest,
    DonorAnswer,
    DonorQuestion,
    Message,
    Refusal,
    SnapshotBlocks,
    SnapshotDone,
    SnapshotOffer,
    SnapshotRequest,
)
from p2p.net.seal import Half, Seal
from p2p.state import manifest
from p2p.state.layout import Block
from p2p.state.shards import Shards
from topology import Member

if TYPE_CHECKING:
    from p2p.agent.agent import Agent

Take = Callable[[int, Tensor, Codec, int], None]
"""What to do with a block that came: its number, its piece, its codec, the donor's step."""
Watch = Callable[[int, int, int], None]
"""Told now and then how it goes: bytes that came, bytes in all, donors."""

BUNDLE = MIB
"""Bytes asked for at once: what moves fast over a fat link, and what a thin one brings between two looks at the clock."""
TICK = 0.05
"""Seconds between two looks, where nothing comes."""
CANDIDATES = 8
"""Members asked how near and how busy they are."""
FAR = 3
"""Who takes so many times as long to answer as the nearest is not waited for."""


class BusyError(JoinError):
    """The member serves others just now."""


class Transfer:
    """Pulls the blocks in `wanted`, each from one of the donors that were invited."""

    def __init__(
        self, agent: Agent, take: Take, wanted: Sequence[Block], watch: Watch | None = None, whole: bool = True
    ) -> None:
        """`whole`: all blocks of one donor are of one moment; else each is as it is when it is asked for."""
        assert agent.task is not None
        self._whole = whole
        self._agent, self._take, self._watch = agent, take, watch
        self._framing = agent.framing
        self._schema = agent.task.shards.schema.fingerprint
        numbers = {block.index for block in wanted}
        sizes = [(block.run, block.nbytes) for block in agent.framing.blocks]
        limit = min(BUNDLE, agent.config.exchange.message_bytes)
        chosen = [(f, c) for f, c in bundles(sizes, limit) if not numbers.isdisjoint(range(f, f + c))]
        self._bytes = {(f, c): sum(size for _, size in sizes[f : f + c]) for f, c in chosen}
        self._invited: list[asyncio.Task[None]] = []
        self._came = asyncio.Event()
        self._looked = 0.0
        self._half = Half()
        self._seals: dict[str, Seal] = {}
        self.offers: dict[str, SnapshotOffer] = {}
        self.begin()

    def begin(self) -> None:
        """From the first block on."""
        self.download = Download(list(self._bytes), self._agent.config.join.progress)
        self._here = 0
        self._givers: set[str] = set()

    @property
    def done(self) -> bool:
        return self.download.done and bool(self.offers)

    @property
    def offer(self) -> SnapshotOffer:
        """That of the donor that was furthest, of those that gave something."""
        given = [offer for node, offer in self.offers.items() if node in self._givers or not self._bytes]
        return max(given, key=lambda offer: (offer.step, offer.round))

    async def recruit(self, ranked: Sequence[str], count: int) -> str:
        """Invite members until one gives, and on until `count` do. What the last one that doesn't said."""
        fresh = [node for node in ranked if node not in self.offers] or list(ranked)
        why = "those who could gave nothing" if ranked else "no member takes part yet"
        while fresh and not self.download.sources:
            tasks = [asyncio.ensure_future(self.invite(node)) for node in fresh[:count]]
            self._invited += tasks
            del fresh[:count]
            while not self.download.sources and not all(task.done() for task in tasks):
                await asyncio.wait([task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED)
            why = next((str(task.exception()) for task in tasks if task.done() and task.exception()), why)
        return why

    async def invite(self, node: str) -> None:
        """Have a member pin a snapshot, and take from it. Raises JoinError where it won't or can't, BusyError if it is busy."""
        offer = await ask(self._agent, node, SnapshotRequest(self._whole, self._half.public))
        if isinstance(offer, Refusal):
            raise BusyError(f"node {node[:10]}: {offer.theirs}")
        if not isinstance(offer, SnapshotOffer):
            raise JoinError(f"node {node[:10]}: an unexpected answer: {type(offer).__name__}")
        o = offer
        said = manifest.head(self._schema, o.snapshot, o.step, o.epoch, o.round, o.extras, o.half)
        if not keys.verify(self._key(node), said, offer.signature):
            raise JoinError(f"node {node[:10]}: its manifest is not signed by it")
        self._seals[node] = self._sealed(node, offer)
        self.offers[node] = offer
        self.download.add(node, self._agent.loop.time())
        self._came.set()

    async def renew(self) -> None:
        """Schedule, step and epoch as they are now, where the blocks are of now."""
        furthest = max(self._givers & self.offers.keys(), key=lambda node: self.offers[node].step, default=None)
        if furthest is not None and not self._whole:
            with suppress(JoinError):
                await self.invite(furthest)

    async def run(self) -> None:
        """Until all is here, or no donor is left."""
        self._agent.transfers.append(self)
        try:
            while not self.download.done and (self.download.sources or not all(task.done() for task in self._invited)):
                self._send()
                self._came.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._came.wait(), TICK)
                self._look()
        finally:
            self._agent.transfers.remove(self)

    def close(self) -> None:
        """The donors may forget their snapshots."""
        for task in self._invited:
            task.cancel()
        for node, offer in self.offers.items():
            self._agent.post.send(node, SnapshotDone(offer.snapshot))

    def received(self, node: str, message: SnapshotBlocks, payload: memoryview | None) -> None:
        """Blocks came. Raises WireError where they are not what was asked for, or not what their donor sealed."""
        shard, offer = message.shard, self.offers.get(node)
        if offer is None or message.snapshot != offer.snapshot or not self.download.wants(node, shard.first, shard.count):
            return
        self._came.set()
        try:
            codec, pieces = self._framing.pieces(shard, payload, self._framing.range(shard.first, shard.count))
            self._verify(node, message, payload)
        except WireError:
            self.download.refused(node, shard.first)
            self._agent.metrics.add("state_refused", node[:10])
            raise
        fresh = self.download.received(node, shard.first, self._agent.loop.time())
        self._send()  # the donor need not wait while the blocks are put where they belong
        if fresh:
            self._put(node, message, codec, pieces, offer.step)

    def broke(self, node: str) -> None:
        """A connection to the node was lost."""
        self.download.broke(node)
        self._came.set()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _put(self, node: str, message: SnapshotBlocks, codec: Codec, pieces: list[tuple[int, Tensor]], step: int) -> None:
        self._givers.add(node)
        self._here += self._bytes[message.shard.first, message.shard.count]
        for index, piece in pieces:
            self._take(index, piece, codec, step)

    def _verify(self, node: str, message: SnapshotBlocks, payload: memoryview | None) -> None:
        shard = message.shard
        said = manifest.line(self._schema, message.snapshot, shard.first, shard.count)
        if shard.codec != RAW.name or not self._seals[node].verify(message.mark, said, payload or b""):
            raise WireError("seal", f"blocks {shard.first} to {shard.first + shard.count - 1} of node {node[:10]}")

    def _sealed(self, node: str, offer: SnapshotOffer) -> Seal:
        try:
            return self._half.seal(offer.half)
        except WireError as error:
            raise JoinError(f"node {node[:10]}: {error}") from None

    def _key(self, node: str) -> bytes:
        record = self._agent.post.record(node)
        return record.key if record is not None else b""

    def _send(self) -> None:
        for fetch in self.download.tick(self._agent.loop.time()):
            request = BlocksRequest(self.offers[fetch.donor].snapshot, fetch.first, fetch.count)
            if self._agent.post.send(fetch.donor, request) is None:
                self.download.unsent(fetch)

    def _look(self) -> None:
        """Now and then: who has died gives nothing more; and how it goes."""
        now = self._agent.loop.time()
        if now - self._looked < TICK and not self.download.done:
            return
        self._looked = now
        live = self._agent.membership.view if self._agent.membership is not None else ()
        for node in [node for node in self.download.sources if node not in live]:
            self.download.lose(node)
        if self._watch is not None:
            self._watch(self._here, sum(self._bytes.values()), len(self.download.sources))


async def pull(agent: Agent, node: str, take: Take, wanted: Sequence[Block]) -> SnapshotOffer:
    """One member's snapshot. Raises JoinError where it won't or can't, BusyError where it serves others."""
    transfer = Transfer(agent, take, wanted)
    try:
        await transfer.invite(node)
        await transfer.run()
    finally:
        transfer.close()
    if not transfer.done:
        raise JoinError(f"node {node[:10]} sent no state for {agent.config.join.progress:g} s")
    return transfer.offer


async def collect(agent: Agent, shards: Shards, watch: Watch | None = None, least: int = 0) -> SnapshotOffer:
    """The whole state, from several members at once where a swap makes each block a matter of its own.

    Only from those that are at step `least` or further. In rounds, and with `donors` = 1, all of it is one member's. Who is
    gone or busy is passed over. Raises JoinError where nothing came for the time that a join has.
    """
    swapper = agent.exchange if isinstance(agent.exchange, Swapper) else None
    count = agent.config.join.donors if swapper is not None else 1
    whole = count == 1

    def take(index: int, data: Tensor, codec: Codec, step: int) -> None:
        shards.set_block(index, data, codec, step)
        if swapper is not None and not whole:
            agent.took(index)
            swapper.arrived(index, agent.loop.time())

    agent.expect()
    transfer = Transfer(agent, take, shards.blocks, watch, whole)
    deadline = agent.loop.time() + agent.config.join.timeout
    try:
        while not transfer.done:
            if count == 1:
                transfer.begin()
            before = transfer.download.arrived
            able = [candidate for candidate in await candidates(agent) if candidate.answer.pulse.step >= least]
            order = [candidate.node for candidate in ranked(able, sum(block.nbytes for block in shards.blocks))]
            if swapper is not None and able and not whole:
                swapper.paced({candidate.node: candidate.answer.pulse for candidate in able})
            why = await transfer.recruit(order, count)
            await transfer.run()
            if not transfer.done and _ended(agent):
                raise JoinError("the swarm has ended: all who were there left, or died, before they gave their state")
            if transfer.download.arrived > before:
                deadline = agent.loop.time() + agent.config.join.timeout
            elif agent.loop.time() >= deadline:
                raise JoinError(f"no member gave its state: {why}")
            elif not transfer.done:
                await asyncio.sleep(agent.config.join.back_off)
        await transfer.renew()
    finally:
        transfer.close()
    return transfer.offer


def _ended(agent: Agent) -> bool:
    """Whether all of whom this node heard are gone."""
    assert agent.membership is not None
    others = [info for node, info in agent.membership.members.items() if node != agent.node]
    return bool(others) and all(info.state not in LIVE for info in others)


async def candidates(agent: Agent, most: int = CANDIDATES) -> list[Candidate]:
    """Members that answer, of `most` that are asked, those of the own site before others; the far ones are not waited for."""
    assert agent.membership is not None
    others = [member for member in agent.membership.view.members if member.id != agent.node]
    place = bisect([member.id for member in others], agent.node)  # not all joiners ask the same
    near = sorted([*others[place:], *others[:place]], key=lambda member: member.site != agent.who.site)[:most]
    began = agent.loop.time()
    asked = [asyncio.ensure_future(_candidate(agent, member)) for member in near]
    waiting, limit = asked, agent.config.join.answer
    while waiting and (rest := began + limit - agent.loop.time()) > 0:
        await asyncio.wait(waiting, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
        waiting = [task for task in asked if not task.done()]
        found = [task.result() for task in asked if task.done()]
        limit = min([limit, *(FAR * candidate.seconds + TICK for candidate in found if candidate is not None)])
    for task in waiting:
        task.cancel()
    return [candidate for task in asked if task not in waiting and (candidate := task.result()) is not None]


async def _candidate(agent: Agent, member: Member) -> Candidate | None:
    began = agent.loop.time()
    try:
        answer = await ask(agent, member.id, DonorQuestion())
    except JoinError:
        return None
    if not isinstance(answer, DonorAnswer):
        return None
    seconds, membership = agent.loop.time() - began, agent.membership
    carries = membership.chart.carries(member.id, agent.node, agent.who.site) if membership is not None else 0.0
    return Candidate(member.id, member.site != agent.who.site, seconds, carries, answer)


async def ask(agent: Agent, node: str, question: Message) -> Message:
    """A member's answer. Raises JoinError, which names the member."""
    route = agent.post.route(node)
    if route is None:
        raise JoinError(f"no way to node {node[:10]}")
    try:
        return await agent.requests.ask(route, question, agent.config.join.answer)
    except JoinError as error:
        raise JoinError(f"node {node[:10]}: {error}") from None
