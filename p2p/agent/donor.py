"""State for joiners, both ends: a donor pins a snapshot of its gossip copy, a joiner pulls it block by block."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from optim.codec import RAW, Codec, writable
from p2p.agent.bundles import bundles
from p2p.agent.framing import Framing
from p2p.agent.post import Post
from p2p.config import Config
from p2p.errors import JoinError
from p2p.net.messages import BlocksRequest, Refusal, SnapshotBlocks, SnapshotDone, SnapshotOffer
from p2p.net.transport import Route
from p2p.state.layout import Block
from p2p.state.shards import Shards
from p2p.state.snapshot import Snapshot


class BusyError(JoinError):
    """The member serves others just now."""


GUESTS = 2
"""Joiners served at once; all of them from the same snapshot."""
STRIDE = 8
"""Blocks copied before the loop turns to other things."""
WINDOW = 4
"""Messages asked for ahead."""
LOOK = 0.5
"""Seconds without a block after which those under way are asked for again."""


@dataclass(slots=True)
class Pinned:
    """A snapshot and those who pull it."""

    offer: SnapshotOffer
    snapshot: Snapshot
    guests: dict[str, float]  # node -> when it was last heard of


class Donor:
    """Serves snapshots; the trainer goes on."""

    def __init__(self, shards: Shards, config: Config, post: Post) -> None:
        self.shards = shards
        self.config = config
        self.post = post
        self._framing = Framing(shards.blocks)
        self._pinned: Pinned | None = None
        self._number = 0

    async def requested(self, node: str, route: Route, offer: SnapshotOffer, now: float) -> None:
        """A joiner wants a snapshot of now: `offer` says which step that is."""
        self.sweep(now)
        if self._pinned is not None and len(self._pinned.guests) >= GUESTS and node not in self._pinned.guests:
            self.post.answer(route, Refusal("busy", f"{GUESTS} joiners are being served; try another member", 0))
            return
        if self._pinned is None:
            self._number += 1
            numbered = replace(offer, snapshot=self._number)
            self._pinned = Pinned(numbered, self.shards.snapshot(), {})
        pinned = self._pinned
        pinned.guests[node] = now
        while not pinned.snapshot.advance(STRIDE):
            await asyncio.sleep(0)
        self.post.answer(route, pinned.offer)

    def blocks(self, node: str, route: Route, request: BlocksRequest, now: float) -> None:
        """Some blocks of the pinned snapshot, straight from it; unanswered where it is gone, and asked again elsewhere."""
        pinned = self._pinned
        if pinned is None or pinned.offer.snapshot != request.snapshot or node not in pinned.guests:
            return
        pinned.guests[node] = now
        blocks = self._framing.range(request.first, request.count)
        payload = writable(pinned.snapshot.payload(blocks[0], blocks[-1]))
        shard = self._framing.describe(request.first, request.count, blocks, RAW, payload)
        self.post.answer(route, SnapshotBlocks(request.snapshot, shard), payload)

    def done(self, node: str, now: float) -> None:
        """The joiner has all that it wants."""
        if self._pinned is not None:
            self._pinned.guests.pop(node, None)
        self.sweep(now)

    def sweep(self, now: float) -> None:
        """Forget silent guests, and the snapshot with the last one: its memory is the size of the shared state."""
        if self._pinned is None:
            return
        for guest, heard in list(self._pinned.guests.items()):
            if now - heard > self.config.join.progress:
                del self._pinned.guests[guest]
        if not self._pinned.guests:
            self._pinned = None


Take = Callable[[int, Tensor, Codec, int], None]
"""What to do with a block that came: its number, its piece, its codec, the donor's step."""


class Pull:
    """A joiner's side of one snapshot: every message with wanted blocks once, each answer checked.

    Fails after `progress` seconds without one.
    """

    def __init__(
        self,
        framing: Framing,
        config: Config,
        post: Post,
        donor: str,
        offer: SnapshotOffer,
        take: Take,
        wanted: Sequence[Block],
    ) -> None:
        self.donor = donor
        self.offer = offer
        self._post = post
        self._take = take
        self._framing = framing
        self._progress = config.join.progress
        sizes = [(b.run, b.nbytes) for b in framing.blocks]
        numbers = {block.index for block in wanted}
        self._todo = deque(
            (first, count)
            for first, count in bundles(sizes, config.exchange.message_bytes)
            if not numbers.isdisjoint(range(first, first + count))
        )
        self._open: dict[int, int] = {}  # first block -> count
        self._came = asyncio.Event()

    async def run(self) -> None:
        """Until all blocks are here. Raises JoinError where nothing comes for too long."""
        try:
            await self._fetch()
        finally:
            self._post.send(self.donor, SnapshotDone(self.offer.snapshot))

    async def _fetch(self) -> None:
        patience = self._progress
        while self._todo or self._open:
            self._ask()
            self._came.clear()
            try:
                await asyncio.wait_for(self._came.wait(), LOOK)
                patience = self._progress
            except TimeoutError:
                patience -= LOOK
                if patience <= 0:
                    raise JoinError(f"node {self.donor[:10]} sent no state for {self._progress:g} s") from None
                self._again()

    def received(self, message: SnapshotBlocks, payload: memoryview | None) -> None:
        """Blocks came. Raises WireError where they are not what was asked for."""
        shard = message.shard
        if message.snapshot != self.offer.snapshot or self._open.get(shard.first) != shard.count:
            return
        codec, pieces = self._framing.pieces(shard, payload, self._framing.range(shard.first, shard.count))
        for index, piece in pieces:
            self._take(index, piece, codec, self.offer.step)
        del self._open[shard.first]
        self._came.set()

    def _ask(self) -> None:
        while self._todo and len(self._open) < WINDOW:
            first, count = self._todo[0]
            if self._post.send(self.donor, BlocksRequest(self.offer.snapshot, first, count)) is None:
                return
            self._open[first] = count
            self._todo.popleft()

    def _again(self) -> None:
        """A broken connection may have lost what was under way."""
        self._todo.extendleft(self._open.items())
        self._open.clear()
