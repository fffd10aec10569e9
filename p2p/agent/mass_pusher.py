"""Push-sum, carried out: shares of the mass become parcels, parcels that come are added, the model is the quotient."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace

from torch import Tensor

from optim import PushSum
from optim.codec import RAW, writable
from p2p.agent.bundles import bundles
from p2p.agent.carrier import Carrier
from p2p.agent.gate import PUSHED
from p2p.agent.parcels import Parcel, Parcels
from p2p.agent.post import Post
from p2p.agent.pusher import LOOK
from p2p.agent.seat import Seat
from p2p.config import Config
from p2p.errors import ConfigError, WireError
from p2p.net.messages import Message, Push, Settled
from p2p.net.transport import Route, Sent
from p2p.report import Metrics
from p2p.state.mass import Mass

BLOCKS = 16
"""Blocks in one parcel at most: all nodes must cut alike, since each parcel has one weight."""
HEAVIEST = 1e9
"""A weight above this is no weight."""
EAGER = 0.02
"""Seconds between rounds once training is over."""


@dataclass(slots=True)
class Under:
    """What is under way in one parcel."""

    push: Push
    buffer: Tensor
    used: int  # bytes
    sent: Sent | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A parcel that came, not added yet."""

    sender: str
    round: int
    bundle: int
    weight: float
    pieces: list[tuple[int, Tensor]]


class MassPusher(Carrier):
    """The exchange of push-sum. The trainer calls `offer` and `settle`; the agent's loop calls all else."""

    patience = 0.0
    """As of Pusher."""

    def __init__(self, shards: Mass, algorithm: PushSum, config: Config, post: Post, metrics: Metrics, first_id: int) -> None:
        super().__init__(shards, post, metrics, 0.0, PUSHED)  # no gate: what is clipped would be lost
        self.shards = shards
        if config.exchange.codec != RAW.name:
            raise ConfigError(f"codec {config.exchange.codec}: push-sum takes raw alone, others would lose mass")
        self.waits = not algorithm.overlap
        limit = BLOCKS * config.exchange.block_bytes
        cut = bundles([(b.run, b.nbytes) for b in shards.blocks], limit)
        self.bundles = [(first, count) for first, count in cut if shards.moves(shards.blocks[first])]
        sizes = [self._framing.nbytes(shards.blocks[first : first + count], RAW) for first, count in self.bundles]
        deadline = replace(config.deadline, enabled=config.deadline.enabled and algorithm.deadline == "adaptive")
        self.parcels = Parcels(sizes, config.exchange, deadline, first_id, self.waits)
        self.links = self.parcels.links
        self._seat: Seat | None = None
        self._under: dict[int, Under] = {}
        self._held: list[Held] = []
        self._over: asyncio.Future[None] | None = None
        self._eager = math.inf  # when the next round without a step begins
        self._closed = False

    # --- the trainer's thread --------------------------------------------------------------------------------

    def offer(self, step: int) -> None:
        """Local updates join the mass; where no step waits, the model is what is there by now."""
        self._nonfinite(self.shards.absorb(weighted=not self.waits))
        if not self.waits:
            self.shards.write()

    def settle(self) -> None:
        """The model becomes the quotient."""
        if self.waits:
            self.shards.write()

    # --- the loop --------------------------------------------------------------------------------------------

    async def arrivals(self) -> None:
        """Give this round's shares, and wait until all have come or the deadline strikes."""
        loop = asyncio.get_running_loop()
        if not self.waits or not self._begin(loop.time()):
            return
        while not self._closed and not self.parcels.complete(loop.time()):
            self._over = loop.create_future()
            timer = loop.call_at(min(self.parcels.wake, loop.time() + LOOK), self._check)
            try:
                await self._over
            finally:
                timer.cancel()
            self.tick(loop.time())
        self.parcels.end()
        self._take_held()
        self.activity.skipped += self.parcels.skipped

    def stepped(self, step: int, now: float) -> None:
        """The trainer finished a step."""
        self.pace.stepped(step, now)
        if not self.waits:
            self._begin(now)

    @property
    def round(self) -> int:
        """The node's own count; before its first one, that of the donor or the checkpoint."""
        return self.parcels.plan.round if self.parcels.plan else max(self.parcels.first - 1, 0)

    @property
    def mean_round(self) -> float:
        """All bundles count the same rounds."""
        return float(self.round)

    @property
    def losses(self) -> int:
        """Nothing is lost that corrections would have to hear of."""
        return 0

    def resume(self, step: int, round: int, members: int) -> None:
        """A joiner begins at its donor's step, in the round after its donor's, with weight 1."""
        self.pace.step = step
        self.parcels.resume(round + 1 if step else 0)

    def await_state(self, members: int) -> None:
        """Another's state is on its way: parcels that wait here were meant for a mass that counts no more."""
        self._held = []

    def slow(self, now: float) -> tuple[str, ...]:
        """Neighbours that are not waited for."""
        return tuple(p for p in self.links if self.parcels.slow(p))

    def seat(self, seat: Seat, now: float) -> None:
        """The view changed."""
        self._seat = seat
        self._keep(seat.ids)
        for exchange in self.parcels.partners(seat.ids):
            self._take_back(exchange)
        self._check()

    def tick(self, now: float) -> None:
        """Send what credit allows, and the receipts."""
        if now >= self._eager and not self._closed:
            self._eager = now + EAGER
            self._begin(now)
        for parcel in self.parcels.tick(now):
            self._send(parcel, now)
        self._take_held()
        for partner, exchanges in self.parcels.receipts().items():
            self.post.send(partner, Settled(tuple(exchanges)))

    @property
    def wake(self) -> float:
        """When `tick` has something to do next."""
        return min(self.parcels.wake, self._eager)

    def handle(self, sender: str, route: Route, message: Message, payload: memoryview | None, now: float) -> None:
        """A data message from a live member. Raises WireError where it can't be what it says."""
        if isinstance(message, Push):
            self._pushed(sender, message, payload)
        elif isinstance(message, Settled):
            for exchange in self.parcels.receipt(sender, message.exchanges, now):
                self._release(exchange)
        self._check()

    def hasten(self) -> None:
        """No local updates any more: where steps didn't wait, rounds go on by themselves."""
        if not self.waits:
            self._eager = 0.0

    def close(self) -> None:
        """Leaving: all that is there goes to a partner, and nothing more is taken."""
        if self._closed:
            return
        self._closed = True
        held, self._held = self._held, []
        for one in held:  # their senders have receipts, and their rounds never come
            self._take(one)
        now = asyncio.get_running_loop().time()
        partners = self._seat.plan(self.parcels.next_round()).outs if self._seat else ()
        if partners:
            for parcel in self.parcels.hand_over(partners[0][0], now):
                self._send(parcel, now)
        self._check()

    @property
    def drained(self) -> bool:
        return not self.parcels.open

    # --- inside ----------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> bool:
        """A new round; False where there is nobody to give to."""
        if self._closed or self._seat is None or len(self._seat.ids) < 2:
            return False
        self.parcels.begin(self._seat.plan(self.parcels.next_round()), now)
        self.tick(now)
        return True

    def _check(self) -> None:
        """Wake who waits in `arrivals`, to look again."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _send(self, parcel: Parcel, now: float) -> None:
        if not parcel.again:
            self._under[parcel.exchange] = self._pack(parcel)
        under = self._under[parcel.exchange]
        if parcel.again and under.sent is not None and not under.sent.done:
            return  # it is on its way
        push = replace(under.push, pulse=self.pace.pulse)
        under.sent = self.post.send(parcel.partner, push, writable(under.buffer[: under.used]))
        shard = under.push.shard
        self.history.note(
            "pushes to" if under.sent is not None else "has no room for", parcel.partner, shard.first, shard.count
        )
        if under.sent is None:
            self.parcels.full(parcel.partner, now)
        else:
            self.parcels.link(parcel.partner).sent += under.used

    def _pack(self, parcel: Parcel) -> Under:
        """The share leaves the mass; from here on it is in the parcel."""
        first, count = self.bundles[parcel.bundle]
        blocks = self.shards.blocks[first : first + count]
        used = self._framing.nbytes(blocks, RAW)
        buffer = self._staging.take(used)
        weights = [self.shards.give(i, parcel.share, RAW, piece) for i, piece in self._framing.cut(buffer[:used], blocks, RAW)]
        shard = self._framing.describe(first, count, blocks, RAW, writable(buffer[:used]))
        return Under(Push(parcel.exchange, parcel.round, weights[0], self.pace.pulse, shard), buffer, used)

    def _release(self, exchange: int) -> None:
        under = self._under.pop(exchange)
        self._staging.give(under.buffer, under.sent)

    def _take_back(self, exchange: int) -> None:
        """The partner is gone."""
        under = self._under[exchange]
        blocks = self._framing.range(under.push.shard.first, under.push.shard.count)
        for index, piece in self._framing.cut(under.buffer[: under.used], blocks, RAW):
            self.shards.take(index, piece, RAW, under.push.weight)
        self._release(exchange)

    def _pushed(self, sender: str, push: Push, payload: memoryview | None) -> None:
        self.pace.heard(sender, push.pulse)
        shard = push.shard
        if not 0 < push.weight < HEAVIEST:
            raise WireError("weight", f"{push.weight} is not a weight")
        if (shard.first, shard.count) not in self.bundles:
            raise WireError("blocks", f"{shard.count} blocks from {shard.first} are no parcel")
        codec, pieces = self._framing.pieces(shard, payload, self._framing.range(shard.first, shard.count))
        if codec is not RAW:
            raise WireError("codec", f"{codec.name} would lose mass")
        if self._closed and not self.parcels.took(sender, push.exchange):
            return  # whoever leaves takes nothing; its sender takes it back
        if not self.parcels.arrived(sender, push.exchange, push.round):
            return
        self.parcels.link(sender).received += payload.nbytes if payload is not None else 0
        self.activity.met(sender, push.pulse)
        self._held.append(Held(sender, push.round, self.bundles.index((shard.first, shard.count)), push.weight, pieces))
        self._take_held()

    def _take_held(self) -> None:
        held, self._held = self._held, []
        for parcel in held:
            if self.parcels.admits(parcel.round, parcel.bundle):
                self._take(parcel)
            else:
                self._held.append(parcel)

    def _take(self, parcel: Held) -> None:
        for index, piece in parcel.pieces:
            difference = self.shards.take(index, piece, RAW, parcel.weight)
            self.parcels.tally.spoilt += not difference.finite
            self._differed(parcel.sender, index, difference)
