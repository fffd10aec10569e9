"""The donor's side of a joiner's state: the gossip copy is served, each bundle of blocks sealed.

Either as it was at one moment, from a copy that is made then; or, to those who exchange while they download, each block as
it is when it is asked for: nothing is out of date when it comes, and no memory is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from optim.codec import RAW, writable
from p2p.agent.framing import Framing
from p2p.agent.post import Post
from p2p.agent.staging import Staging
from p2p.config import Config
from p2p.errors import WireError
from p2p.net.messages import BlocksRequest, Refusal, SnapshotBlocks, SnapshotOffer, SnapshotRequest
from p2p.net.seal import Half, Seal
from p2p.net.transport import Route, Sent
from p2p.state import manifest
from p2p.state.layout import Block
from p2p.state.shards import Shards
from p2p.state.snapshot import Snapshot

GUESTS = 2
"""Joiners served at once; those who want all of one moment from the same snapshot."""
STRIDE = 4
"""Blocks copied before the loop turns to other things."""

Sign = Callable[[bytes], bytes]


@dataclass(slots=True)
class Guest:
    """Who pulls what was offered."""

    seal: Seal
    heard: float


@dataclass(slots=True)
class Pinned:
    """An offer and its guests."""

    offer: SnapshotOffer
    half: Half  # of the key with each of them
    snapshot: Snapshot | None  # None: blocks as they are when they are asked for
    guests: dict[str, Guest]


class Donor:
    """Serves snapshots; the trainer goes on."""

    def __init__(self, shards: Shards, config: Config, post: Post, sign: Sign) -> None:
        self.shards = shards
        self.config = config
        self.post = post
        self._sign = sign
        self._schema = shards.schema.fingerprint
        self._framing = Framing(shards.blocks)
        self._staging = Staging()
        self._pinned: dict[int, Pinned] = {}  # by the offer's number
        self._number = 0

    @property
    def guests(self) -> int:
        """Joiners being served."""
        return sum(len(pinned.guests) for pinned in self._pinned.values())

    def requested(
        self, node: str, route: Route, request: SnapshotRequest, offer: SnapshotOffer, now: float, instead: str
    ) -> None:
        """A joiner wants the state of now: `offer` says which step that is, `instead` whom else it could ask.

        Raises WireError where it can't be answered. What is to be of one moment is then copied by `fill`.
        """
        self.done(node, now)
        shared = next((p for p in self._pinned.values() if p.snapshot is not None), None) if request.whole else None
        if self.guests >= GUESTS:
            self.post.answer(route, Refusal("busy", f"{GUESTS} joiners are being served; try {instead}", 0))
            return
        if shared is not None and offer.step - shared.offer.step > self.config.join.lag:
            self.post.answer(route, Refusal("busy", f"a joiner is being served an older state; try {instead}", 0))
            return
        pinned = shared or self._pin(offer, self.shards.snapshot() if request.whole else None)
        pinned.guests[node] = Guest(pinned.half.seal(request.half), now)
        self.post.answer(route, pinned.offer)

    async def fill(self) -> None:
        """Make the copies; the loop turns to other things in between."""
        for pinned in list(self._pinned.values()):
            while pinned.snapshot is not None and not pinned.snapshot.advance(STRIDE):
                await asyncio.sleep(0)

    def blocks(self, node: str, route: Route, request: BlocksRequest, now: float) -> None:
        """Some blocks of what was offered; unanswered where that is gone, and asked again elsewhere."""
        pinned = self._pinned.get(request.snapshot)
        guest = pinned.guests.get(node) if pinned is not None else None
        if pinned is None or guest is None:
            return
        blocks = self._framing.range(request.first, request.count)
        if self._framing.nbytes(blocks, RAW) > self.config.exchange.message_bytes:
            raise WireError("blocks", f"{request.count} blocks from {request.first} are more than one message carries")
        guest.heard = now
        if pinned.snapshot is not None:  # its memory changes no more
            self._answer(route, request, blocks, pinned.snapshot.payload(blocks[0], blocks[-1]), guest.seal)
        else:
            buffer = self._staging.take(self._framing.nbytes(blocks, RAW))
            self._staging.give(buffer, self._answer(route, request, blocks, self._present(blocks, buffer), guest.seal))

    def _present(self, blocks: list[Block], buffer: Tensor) -> Tensor:
        """The blocks as they are now, copied to the buffer."""
        data = buffer[: self._framing.nbytes(blocks, RAW)]
        for block, (_, piece) in zip(blocks, self._framing.cut(data, blocks, RAW), strict=True):
            self.shards.read(block, piece.view(block.dtype))
        return data

    def _answer(self, route: Route, request: BlocksRequest, blocks: list[Block], data: Tensor, seal: Seal) -> Sent | None:
        payload = writable(data)
        shard = self._framing.describe(request.first, request.count, blocks, RAW, payload)
        mark = seal.mark(manifest.line(self._schema, request.snapshot, request.first, request.count), payload)
        return self.post.answer(route, SnapshotBlocks(request.snapshot, shard, mark), payload)

    def done(self, node: str, now: float) -> None:
        """The joiner has all that it wants."""
        for pinned in self._pinned.values():
            pinned.guests.pop(node, None)
        self.sweep(now)

    def sweep(self, now: float) -> None:
        """Forget silent guests, and a snapshot with its last one: its memory is the size of the shared state."""
        for number, pinned in list(self._pinned.items()):
            pinned.guests = {n: guest for n, guest in pinned.guests.items() if now - guest.heard <= self.config.join.progress}
            if not pinned.guests:
                del self._pinned[number]

    def _pin(self, offer: SnapshotOffer, snapshot: Snapshot | None) -> Pinned:
        self._number += 1
        half = Half()
        said = manifest.head(self._schema, self._number, offer.step, offer.epoch, offer.round, offer.extras, half.public)
        signed = replace(offer, snapshot=self._number, half=half.public, signature=self._sign(said))
        self._pinned[self._number] = Pinned(signed, half, snapshot, {})
        return self._pinned[self._number]
