"""Live swaps, carried out: what the swap machine says becomes messages; what arrives is mixed from the received memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from optim import Async
from optim.codec import RAW, Codec, Form, Projection, writable
from p2p.agent.carrier import Carrier
from p2p.agent.coding import Coding
from p2p.agent.exchange import Swaps
from p2p.agent.framing import EMPTY
from p2p.agent.gate import SWAPPED
from p2p.agent.post import Post
from p2p.agent.replicas import named
from p2p.agent.seat import Seat
from p2p.agent.swap import Opened, Repeat
from p2p.config import ExchangeConfig
from p2p.errors import WireError
from p2p.net.messages import Answer, Ask, Message, Pulse, Reask, Settled
from p2p.net.transport import Route, Sent
from p2p.report import Metrics
from p2p.state.layout import Block
from p2p.state.outcome import Difference, Limit
from p2p.state.shards import Shards


@dataclass(slots=True)
class Kept:
    """An answer and the buffer of its payload, kept until its receipt."""

    answer: Answer
    buffer: Tensor
    used: int  # bytes
    sent: Sent | None = None


LARGE = 256 * 1024
"""Bytes of an answer whose receipt does not wait for a message to ride on: so much longer its sender would keep it."""
SLACK = 1.5
"""By so many times an honest answer may exceed what it was told: a codec rounds."""


class Swapper(Carrier):
    """The exchange of asynchronous algorithms: no step waits. The trainer calls `offer`; the agent's loop calls all else."""

    waits = False
    patience = 0.01
    """Seconds that the loop may hear late of a step: swaps go by the clock, a step only corrects their pace."""

    def __init__(
        self, shards: Shards, algorithm: Async, config: ExchangeConfig, post: Post, metrics: Metrics, first_id: int
    ) -> None:
        super().__init__(shards, post, metrics, algorithm.clip, SWAPPED)
        self.shards = shards
        self.coding = Coding(shards.blocks, config)
        halves = replace(config, credit_max=max(config.credit_max // 2, config.message_bytes))
        self.swaps = Swaps([(b.run, b.nbytes) for b in shards.blocks], halves, lambda round: (), first_id)
        self.swaps.agenda.spread = algorithm.spread
        self.swaps.size = self.coding.nbytes
        self.swaps.free = self.coding.free
        self.swaps.limits = post if post.limited else None
        self._algorithm = algorithm
        self.links = self.swaps.links
        self._settle_after = config.settle_after
        self._receipts_due = math.inf

    # --- the trainer's thread --------------------------------------------------------------------------------------

    def offer(self, step: int) -> None:
        """Trainer and agent meet: local updates join the gossip copy, what gossip brought joins the model."""
        meeting = self.shards.meet(step)
        self._nonfinite(meeting.nonfinite)

    async def arrivals(self) -> None:
        """Nothing to wait for."""

    def settle(self) -> None:
        """Nothing to combine: the meeting did."""

    # --- the loop --------------------------------------------------------------------------------------------------

    @property
    def round(self) -> int:
        """Own swaps of the block that had the most, withdrawn ones included; kept count of, as each step reports it."""
        return self.swaps.most

    @property
    def mean_round(self) -> float:
        """Own swaps of the average block."""
        return sum(b.swaps for b in self.swaps.blocks) / max(len(self.swaps.blocks), 1)

    @property
    def losses(self) -> int:
        """Nothing is lost that corrections would have to hear of."""
        return 0

    def resume(self, step: int, round: int, members: int) -> None:
        """A joiner begins at its donor's step, with all of its state; its weight limit rises over its first rounds."""
        self.pace.step = step
        self.swaps.ramp = _ramp(members) if step else 0
        self.swaps.arrived()

    def await_state(self, members: int) -> None:
        """A joiner's state comes block by block."""
        self.swaps.await_state(_ramp(members))

    def paced(self, pulses: Mapping[str, Pulse]) -> None:
        """How fast members step, and how far they are, before any exchange with them."""
        for node, pulse in pulses.items():
            self.pace.heard(node, pulse)
        self.pace.step = max(pulse.step for pulse in pulses.values())
        self.swaps.pace = self.pace.neighbourhood()

    def arrived(self, index: int, now: float) -> None:
        """A block is there, and takes part; just come, it is as new as after a swap."""
        self.swaps.arrived([index], now + self.swaps.interval)

    def slow(self, now: float) -> tuple[str, ...]:
        """Partners that are paused: nothing new is asked of them until they answer."""
        return tuple([p for p, link in self.links.items() if link.parcels and link.paused(now)])

    def stepped(self, step: int, now: float) -> None:
        """The trainer finished a step."""
        self.pace.stepped(step, now)
        self.swaps.pace = self.pace.neighbourhood()
        self.swaps.period = self._algorithm.interval(step)
        self.swaps.silent = self.silent
        self.coding.stepped(step)
        self.swaps.stepped(step, now)

    def seat(self, seat: Seat, now: float) -> None:
        """The view changed."""
        self.swaps.row = seat.draw if self._algorithm.partners == "random" else seat.asks
        self._keep(seat.ids)
        self._free(self.swaps.partners(seat.ids, seat.joining))
        members = seat.view.members
        self.coding.seat(members[seat.index].site, {member.id: member.site for member in members})

    def tick(self, now: float) -> None:
        """Send what is due."""
        for instruction in self.swaps.tick(now):
            if isinstance(instruction, Repeat):
                self.post.send(instruction.partner, Reask(instruction.exchange))
            else:
                self._ask(instruction, now)
        self._tell_receipts(now)

    @property
    def wake(self) -> float:
        """When `tick` has something to do next."""
        wake = self.swaps.wake
        return wake if wake < self._receipts_due else self._receipts_due

    def handle(self, sender: str, route: Route, message: Message, payload: memoryview | None, now: float) -> None:
        """A data message from a live member. Raises WireError where it can't be what it says."""
        if isinstance(message, Ask):
            self._asked(sender, route, message, payload)
        elif isinstance(message, Answer):
            self._answered(sender, message, payload, now)
        elif isinstance(message, Reask):
            self._again(sender, route, message.exchange, self.swaps.asked(sender, message.exchange, 0, 0, 0.0).answer)
        elif isinstance(message, Settled):
            self._free(self.swaps.settled(sender, message.exchanges))

    def hasten(self) -> None:
        """No local updates any more: a block is due again as soon as its last swap could have come back."""
        self.swaps.eager = True

    def close(self) -> None:
        """Open no more swaps and answer none; `drained` says when the last own one is through."""
        self.swaps.closing = True

    @property
    def drained(self) -> bool:
        return self.swaps.drained()

    # --- asking ----------------------------------------------------------------------------------------------------

    def _ask(self, opened: Opened, now: float) -> None:
        """Stage a copy of the blocks, so that what travels is exactly what was meant, and send it."""
        blocks = self.shards.blocks[opened.first : opened.first + opened.count]
        if not all(self.coding.told.free(opened.partner, block.index) for block in blocks):
            self.swaps.withdrawn(opened.exchange)  # chosen twice in one tick: what the partner will hold is not known yet
            return
        codec, bases, remembered = self.coding.of(opened.partner, blocks)
        nbytes = self._framing.nbytes(blocks, codec)
        buffer = self._staging.take(nbytes)
        pieces = list(self._framing.cut(buffer[:nbytes], blocks, codec))
        self.coding.begin(opened.partner, opened.exchange, codec, pieces)
        refused = self.shards.stage(opened.first, opened.count, codec, buffer[:nbytes], bases)
        if refused:
            self._nonfinite(refused)
            self._staging.give(buffer)
            self.swaps.withdrawn(opened.exchange)
            return
        payload = writable(buffer[:nbytes])
        shard = self._framing.describe(opened.first, opened.count, blocks, codec, payload)
        part = isinstance(codec, Projection)
        bounds = tuple(self.gate.limit(b.index, part).bound(self.shards.norm(b.index)) for b in blocks)
        self.swaps.told_bounds(opened.exchange, bounds)
        base = named(codec, blocks, bases) if remembered else ()
        ask = Ask(opened.exchange, opened.weight, self.pace.pulse, self.swaps.receipts(opened.partner), bounds, shard, base)
        sent = self.post.send(opened.partner, ask, payload)
        self._staging.give(buffer, sent)
        self.history.note("asks" if sent is not None else "has no room for", opened.partner, opened.first, opened.count)
        if sent is None:
            self.swaps.unsent(opened.exchange, now)
            return
        if remembered:
            self.coding.told.asked(opened.partner, codec, pieces)
        self.swaps.link(opened.partner).sent += nbytes
        self.swaps.told(opened.partner)

    def _answered(self, sender: str, answer: Answer, payload: memoryview | None, now: float) -> None:
        """What isn't what it should be leaves the swap open: the answer is asked for again."""
        self.pace.heard(sender, answer.pulse)
        opened = self.swaps.asking(sender, answer.exchange)
        if opened is None:
            return
        blocks = self._accepted(opened, answer)
        if not blocks:
            self.history.note("is declined by", sender, opened.first, opened.count)
            self.coding.told.declined(sender, opened, answer)
            self.swaps.answered(answer.exchange, now, mixed=False)
            return
        self._check_weight(answer.weight, opened.weight)
        self._check_weight(answer.share, 1.0)
        codec, pieces = self._framing.pieces(answer.shard, payload, blocks, tuple(Form))
        bounds = self.swaps.bounds(answer.exchange)
        self.coding.told.declined(sender, opened, answer)
        self.swaps.answered(answer.exchange, now, mixed=True)
        self.coding.review(sender, self.swaps.link(sender), self.swaps.pace, now)
        for i, piece in pieces:
            limit = Limit(SLACK * bounds[i - opened.first])
            difference = self.shards.settle(i, piece, codec, answer.weight, answer.pulse.step, limit, answer.share)
            self.swaps.tally.moved += difference.clipped or not difference.finite
            self._compared(sender, i, difference, codec)
            self.coding.answered(sender, i, codec, piece, answer.share)
        nbytes = payload.nbytes if payload is not None else 0
        self.swaps.link(sender).received += nbytes
        if nbytes >= LARGE:
            self._receipts_due = now
        self.activity.met(sender, answer.pulse)

    def _accepted(self, opened: Opened, answer: Answer) -> list[Block]:
        for bits in (answer.accepted, answer.unknown):
            if not 0 <= bits < 1 << opened.count:
                raise WireError("blocks", f"{bits:#x} names blocks that were not asked about")
        blocks = self.shards.blocks[opened.first : opened.first + opened.count]
        return [b for b in blocks if answer.accepted >> b.index - opened.first & 1]

    def _tell_receipts(self, now: float) -> None:
        """Receipts ride on requests; what found none travels alone: of large answers at once, else after `settle_after`."""
        waiting = self.swaps.unreceipted()
        if not waiting:
            self._receipts_due = math.inf
        elif self._receipts_due == math.inf:
            self._receipts_due = now + self._settle_after
        elif now >= self._receipts_due:
            self._receipts_due = math.inf
            for partner in waiting:
                self.post.send(partner, Settled(self.swaps.receipts(partner)))
                self.swaps.told(partner)

    # --- being asked -----------------------------------------------------------------------------------------------

    def _asked(self, sender: str, route: Route, ask: Ask, payload: memoryview | None) -> None:
        self.pace.heard(sender, ask.pulse)
        self._check_weight(ask.weight, 0.5)
        blocks = self._framing.range(ask.shard.first, ask.shard.count)
        codec, pieces = self._framing.pieces(ask.shard, payload, blocks, tuple(Form))
        self._check_bases(ask.bases, codec, blocks)
        if len(ask.bounds) != len(blocks) or not all(0 <= bound < math.inf for bound in ask.bounds):
            raise WireError("bounds", f"{len(ask.bounds)} bounds for {len(blocks)} blocks, or some are no norms")
        self._free(self.swaps.settled(sender, ask.settled))
        verdict = self.swaps.asked(sender, ask.exchange, ask.shard.first, ask.shard.count, ask.weight)
        if verdict.answer is not None or not verdict.accepted:
            self.history.note("answers again" if verdict.answer else "declines", sender, ask.shard.first, ask.shard.count)
            self._again(sender, route, ask.exchange, verdict.answer)
            return
        wanted = [(i, piece) for i, piece in pieces if verdict.accepted >> (i - ask.shard.first) & 1]
        self._mix(sender, route, ask, codec, wanted, verdict.weight)

    def _mix(self, sender: str, route: Route, ask: Ask, codec: Codec, pieces: list[tuple[int, Tensor]], weight: float) -> None:
        buffer = self._staging.take(self._framing.nbytes([self.shards.blocks[i] for i, _ in pieces], codec))
        mixed: list[Block] = []
        used = unknown = 0
        share, theirs = self._shares(ask.pulse.samples)
        for i, piece in pieces:
            block = self.shards.blocks[i]
            size = codec.nbytes(block.elements, block.dtype)
            out = buffer[used : used + size]
            finite, known = self._join(sender, ask, codec, block, piece, out, (weight, share, theirs))
            unknown |= (not known) << i - ask.shard.first
            if finite:
                mixed.append(block)
                used += size
        if not mixed:
            self._staging.give(buffer)
            self._again(sender, route, ask.exchange, None, unknown)
            return
        payload = writable(buffer[:used])
        shard = self._framing.describe(ask.shard.first, ask.shard.count, mixed, codec, payload)
        accepted = sum(1 << (b.index - ask.shard.first) for b in mixed)
        answer = Answer(ask.exchange, accepted, weight, self.pace.pulse, shard, theirs, unknown)
        self._answer(sender, route, ask, answer, buffer, used)

    def _join(
        self, sender: str, ask: Ask, codec: Codec, block: Block, piece: Tensor, out: Tensor, how: tuple[float, float, float]
    ) -> tuple[bool, bool]:
        """Mix one block and write the answer to `out`; whether it was, and whether what it was told by is known from here on.

        `how`: the weight, and the shares that this node and the initiator take.
        """
        weight, share, theirs = how
        at, heard = block.index - ask.shard.first, self.coding.heard
        own = self.gate.limit(block.index, isinstance(codec, Projection))
        limits, value = (own, Limit(ask.bounds[at], gross=own.gross)), None
        if ask.bases:
            value = heard.theirs(sender, block, codec, piece, ask.bases[at])
            if value is None:
                return False, False
        read, data = (codec, piece) if value is None else (RAW, value.view(torch.uint8))
        difference = self.shards.answer(block.index, data, read, weight, out, ask.pulse.step, limits, share, codec)
        self._compared(sender, block.index, difference, codec)
        if not difference.finite:
            heard.store.drop(sender, block.index)
            return False, True
        return True, value is None or heard.mixed(sender, block, value, codec, out, theirs)

    def _shares(self, theirs: float) -> tuple[float, float]:
        """Of a change, what this node and the initiator take: who has more samples per step moves less."""
        own = self.pace.samples
        if self._algorithm.weight != "samples" or not (own > 0 and 0 < theirs < math.inf):
            return 1.0, 1.0
        return min(1.0, theirs / own), min(1.0, own / theirs)

    def _answer(self, sender: str, route: Route, ask: Ask, answer: Answer, buffer: Tensor, used: int) -> None:
        """Send the encoded changes, and keep them until the initiator says that it has them."""
        payload = writable(buffer[:used])
        self.swaps.link(sender).received += used
        self.swaps.link(sender).sent += used
        kept = Kept(answer, buffer, used, self.post.answer(route, answer, payload))
        self._free(self.swaps.keep(sender, ask.exchange, used, kept))
        self.activity.met(sender, ask.pulse)

    def _again(self, sender: str, route: Route, exchange: int, kept: object | None, unknown: int = 0) -> None:
        """Send a kept answer again, or decline in a few bytes."""
        if isinstance(kept, Kept):
            if kept.sent is not None and not kept.sent.done:
                return  # it is on its way
            answer = replace(kept.answer, pulse=self.pace.pulse)
            kept.sent = self.post.answer(route, answer, writable(kept.buffer[: kept.used]))
        else:
            self.post.answer(route, Answer(exchange, 0, 0.0, self.pace.pulse, EMPTY, unknown=unknown))

    def _free(self, kept: list[object]) -> None:
        for item in kept:
            if isinstance(item, Kept):
                self._staging.give(item.buffer, item.sent)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _check_weight(self, weight: float, limit: float) -> None:
        if not 0 < weight <= limit:
            raise WireError("weight", f"{weight} is not in (0, {limit}]")

    def _check_bases(self, bases: tuple[int, ...], codec: Codec, blocks: list[Block]) -> None:
        wrong = len(bases) != len(blocks) or codec.form is Form.PART or not blocks[0].kind.linear
        if (bases and wrong) or (codec.form is Form.CHANGES and not bases):
            raise WireError("bases", f"{len(bases)} bases for {len(blocks)} blocks by {codec.name}")

    def _compared(self, sender: str, index: int, difference: Difference, codec: Codec) -> None:
        """A codec for a part shows a part of the difference."""
        elements = self.shards.blocks[index].elements
        seen = codec.magnify(elements) if isinstance(codec, Projection) else 1.0
        self._differed(sender, index, difference, seen)
        if difference.finite:
            self.swaps.stream.differed(index, math.sqrt(difference.squared / elements))


def _ramp(members: int) -> int:
    """Rounds over which a joiner's weight limit rises: 2 log2 n."""
    return 2 * math.ceil(math.log2(max(members, 2)))
