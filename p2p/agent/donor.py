"""The donor's side of a joiner's state: a snapshot of the gossip copy is pinned and served, each bundle of blocks signed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from optim.codec import RAW, writable
from p2p.agent.framing import Framing
from p2p.agent.post import Post
from p2p.config import Config
from p2p.errors import WireError
from p2p.net.messages import BlocksRequest, Refusal, SnapshotBlocks, SnapshotOffer
from p2p.net.transport import Route
from p2p.state import manifest
from p2p.state.shards import Shards
from p2p.state.snapshot import Snapshot

GUESTS = 2
"""Joiners served at once; all of them from the same snapshot."""
STRIDE = 4
"""Blocks copied before the loop turns to other things."""

Sign = Callable[[bytes], bytes]


@dataclass(slots=True)
class Pinned:
    """A snapshot and those who pull it."""

    offer: SnapshotOffer
    snapshot: Snapshot
    guests: dict[str, float]  # node -> when it was last heard of


class Donor:
    """Serves snapshots; the trainer goes on."""

    def __init__(self, shards: Shards, config: Config, post: Post, sign: Sign) -> None:
        self.shards = shards
        self.config = config
        self.post = post
        self._sign = sign
        self._schema = shards.schema.fingerprint
        self._framing = Framing(shards.blocks)
        self._pinned: Pinned | None = None
        self._number = 0

    @property
    def guests(self) -> int:
        """Joiners being served."""
        return len(self._pinned.guests) if self._pinned is not None else 0

    async def requested(self, node: str, route: Route, offer: SnapshotOffer, now: float, instead: str) -> None:
        """A joiner wants a snapshot of now: `offer` says which step that is, `instead` whom else it could ask."""
        self.sweep(now)
        if self._pinned is not None and len(self._pinned.guests) >= GUESTS and node not in self._pinned.guests:
            self.post.answer(route, Refusal("busy", f"{GUESTS} joiners are being served; try {instead}", 0))
            return
        if self._pinned is None:
            self._pinned = self._pin(offer)
        pinned = self._pinned
        pinned.guests[node] = now
        self.post.answer(route, pinned.offer)
        while not pinned.snapshot.advance(STRIDE):
            await asyncio.sleep(0)

    def blocks(self, node: str, route: Route, request: BlocksRequest, now: float) -> None:
        """Some blocks of the pinned snapshot, straight from it; unanswered where it is gone, and asked again elsewhere."""
        pinned = self._pinned
        if pinned is None or pinned.offer.snapshot != request.snapshot or node not in pinned.guests:
            return
        blocks = self._framing.range(request.first, request.count)
        if self._framing.nbytes(blocks, RAW) > self.config.exchange.message_bytes:
            raise WireError("blocks", f"{request.count} blocks from {request.first} are more than one message carries")
        pinned.guests[node] = now
        payload = writable(pinned.snapshot.payload(blocks[0], blocks[-1]))
        shard = self._framing.describe(request.first, request.count, blocks, RAW, payload)
        digest = hashlib.sha256(payload).digest()
        signature = self._sign(manifest.line(self._schema, request.snapshot, request.first, request.count, digest))
        self.post.answer(route, SnapshotBlocks(request.snapshot, shard, digest, signature), payload)

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

    def _pin(self, offer: SnapshotOffer) -> Pinned:
        self._number += 1
        said = manifest.head(self._schema, self._number, offer.step, offer.epoch, offer.round, offer.extras)
        signed = replace(offer, snapshot=self._number, signature=self._sign(said))
        return Pinned(signed, self.shards.snapshot(), {})
