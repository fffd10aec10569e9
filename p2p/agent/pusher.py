"""Synchronous rounds, carried out: the state is published, pushed, and combined with what came in time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from optim import Standing, Synchronous
from optim.codec import Codec, writable
from optim.synchronous import Turn
from p2p.agent.carrier import Carrier
from p2p.agent.coding import Pushing
from p2p.agent.framing import EMPTY
from p2p.agent.gate import PUSHED
from p2p.agent.post import Post
from p2p.agent.rounds import Arrived, Mixed, Plan, Pushed, Question, Rounds
from p2p.agent.seat import Seat
from p2p.config import Config
from p2p.errors import WireError
from p2p.net.messages import Answer, Message, Push, Reask, Settled
from p2p.net.transport import Route
from p2p.report import Metrics
from p2p.state.layout import Block
from p2p.state.parts import members
from p2p.state.shards import Part, Published, Shards

LOOK = 1.0
"""Seconds after which a wait looks again at the latest."""

WORST = 1e30
"""The largest loss that travels: what is larger, or not finite, goes as this."""

Blocks = dict[int, tuple[Codec, Tensor]]
"""Pieces of one push, by block."""


@dataclass(frozen=True, slots=True)
class Late:
    """What came after its round was combined."""

    sender: str
    round: int
    weight: float
    load: Load


@dataclass(frozen=True, slots=True)
class Load:
    """What came: opaque to the machine."""

    step: int
    loss: float
    blocks: Blocks


class Pusher(Carrier):
    """The exchange of synchronous algorithms. The trainer calls `offer` and `settle`; the agent's loop calls all else."""

    waits = True
    patience = 0.0
    """Seconds that the loop may hear late of a step: what the step published leaves with it."""

    def __init__(
        self, shards: Shards, algorithm: Synchronous, config: Config, post: Post, metrics: Metrics, first_id: int
    ) -> None:
        super().__init__(shards, post, metrics, algorithm.clip, PUSHED)
        self._algorithm = algorithm
        self.shards = shards
        self.coding = Pushing(config.exchange.codec)
        blocks = [(b.run, b.nbytes) for b in shards.blocks]
        self.rounds = Rounds(
            blocks,
            config.exchange,
            replace(config.deadline, enabled=config.deadline.enabled and algorithm.deadline == "adaptive"),
            first_id,
            members(shards.sources, shards.blocks, algorithm.parts, algorithm.whole),
        )
        self.links = self.rounds.links
        self._seat: Seat | None = None
        self._published: dict[int, Published] = {}  # the last two, by round
        self._offered: Published | None = None
        self._late: list[Late] = []
        self._mixed: Mixed | None = None
        self._over: asyncio.Future[None] | None = None
        self._coming = 0  # the part whose turn is next
        self._closed = False

    # --- the trainer's thread --------------------------------------------------------------------------------------

    def offer(self, step: int) -> None:
        """Late blocks count against the state of their round; then this round's state is published."""
        self._offered = self._publish(step)

    def settle(self) -> None:
        """x = w_ii s_i + sum_j w_ij y_j, in neighbour order; the weight of what is missing goes to the own state."""
        mixed, published = self._mixed, self._offered
        self._mixed = None
        if mixed is None or published is None or not mixed.parts:
            return
        given = math.fsum(weight for _, weight in mixed.plan.ins)
        neighbours = loads(mixed)
        weights = self._weigh([(weight, load) for _, weight, load in neighbours], mixed.plan.own + given)
        for block in [self.shards.blocks[i] for i in self.rounds.parts[mixed.plan.part]]:
            limit = self.gate.limit(block.index)
            there = [
                (sender, Part(weight, data, codec, load.step, limit))
                for (sender, _, load), weight in zip(neighbours, weights, strict=True)
                if block.index in load.blocks
                for codec, data in [load.blocks[block.index]]
            ]
            parts = [part for _, part in there]
            own = mixed.plan.own + (given - math.fsum(part.weight for part in parts))
            differences = self.shards.combine(block.index, own, parts, published, self._algorithm.rule, self._algorithm.bad)
            for (sender, _), difference in zip(there, differences, strict=True):
                self._differed(sender, block.index, difference)
        self.shards.flush()

    # --- the loop --------------------------------------------------------------------------------------------------

    async def arrivals(self) -> None:
        """Push this round, and wait until all have come or the deadline strikes."""
        assert self._offered is not None, "offer comes first"
        if self._begin(self._offered, asyncio.get_running_loop().time()):
            await self._wait()

    def _begin(self, published: Published, now: float) -> bool:
        """Push this state; False where there is nobody to push to."""
        self.more = False
        if self._seat is None or self._alone:
            self._published = {}
            return False
        round, turn = self.rounds.next_round(), self._turn
        self._published = {r: p for r, p in self._published.items() if r == round - 1} | {round: published}
        self.more = not turn.last
        plan = replace(self._seat.plan(turn.round), round=round, part=turn.part)
        self.rounds.begin(self._planned(plan), now, silent=bool(published.nonfinite))
        self.tick(now)
        return True

    async def _wait(self) -> None:
        """Until the round that has begun is over."""
        loop = asyncio.get_running_loop()
        while not self._closed and not (self.rounds.complete(loop.time()) and self.rounds.departed(loop.time())):
            await self._event(loop)
            self.tick(loop.time())
        self._mixed = self._finished(self.rounds.finish())
        self._coming = self._turn.part
        self.activity.skipped += self._mixed.skipped

    @property
    def round(self) -> int:
        """The round that all count together; before the first one, that of the donor or the checkpoint."""
        return self.rounds.plan.round if self.rounds.plan else max(self.rounds.first - 1, 0)

    @property
    def mean_round(self) -> float:
        """Of the average block, where parts have their turns."""
        return self.round / self._algorithm.parts

    def part(self, step: int) -> int:
        """Whose turn it is after this step; who is alone goes round all the same."""
        return (step - 1) % self._algorithm.parts if self._alone else self._coming

    @property
    def losses(self) -> int:
        """Pushes that never joined: the sum over all nodes moved each time."""
        return self.rounds.tally.missed + self.rounds.tally.stale

    def resume(self, step: int, round: int, members: int) -> None:
        """A joiner begins at its donor's step, and in the round after its donor's, or in the first one with it."""
        self.pace.step = step
        self.rounds.resume(round + 1 if step else 0)
        self._published, self._mixed = {}, None

    def slow(self, now: float) -> tuple[str, ...]:
        """Neighbours that are not waited for."""
        return tuple(p for p in self.rounds.neighbours if self.rounds.slow(p))

    def stepped(self, step: int, now: float) -> None:
        """The trainer finished a step."""
        self.pace.stepped(step, now)
        self.tick(now)

    def seat(self, seat: Seat, now: float) -> None:
        """The view changed."""
        self._seat = seat
        self._keep(seat.ids)
        self.rounds.partners(seat.ids, now)
        self._coming = self._turn.part
        self._check()

    def tick(self, now: float) -> None:
        """Send what credit allows, and the receipts."""
        for instruction in self.rounds.tick(now):
            if isinstance(instruction, Question):
                self.post.send(instruction.partner, Reask(instruction.exchange))
            elif not self._push(instruction):
                self.rounds.unsent(instruction, now)
        for partner, exchanges in self.rounds.receipts().items():
            self.post.send(partner, Settled(tuple(exchanges)))

    @property
    def wake(self) -> float:
        """When `tick` has something to do next."""
        return self.rounds.wake

    def handle(self, sender: str, route: Route, message: Message, payload: memoryview | None, now: float) -> None:
        """A data message from a live member. Raises WireError where it can't be what it says."""
        if isinstance(message, Push):
            self._pushed(sender, message, payload, now)
        elif isinstance(message, Settled):
            self.rounds.receipt(sender, message.exchanges, now)
        elif isinstance(message, Reask):
            has = self.rounds.has(sender, message.exchange)
            self.tick(now)  # receipts go first, by the same connection
            self.post.send(sender, Answer(message.exchange, int(has), 0.0, self.pace.pulse, EMPTY))
        elif isinstance(message, Answer):
            self.rounds.told(sender, message.exchange, message.accepted != 0, now)
        self.tick(now)
        self._check()

    def hasten(self) -> None:
        """Rounds go as fast as steps do."""

    def close(self) -> None:
        """End the wait, if there is one; nothing is owed to anybody after a round."""
        self._closed = True
        self._check()

    drained = True

    # --- inside ----------------------------------------------------------------------------------------------------

    def _weigh(self, others: Sequence[tuple[float, Load]], total: float) -> Sequence[float]:
        """The weights that the algorithm gives to what came; after training, those of the topology."""
        weights = [weight for weight, _ in others]
        if not self.training:
            return weights
        own = Standing(total - math.fsum(weights), self.pace.step, self._told)
        return self._algorithm.weigh(own, [Standing(weight, load.step, load.loss) for weight, load in others])

    @property
    def _told(self) -> float:
        return max(-WORST, min(self.loss, WORST)) if not math.isnan(self.loss) else WORST

    @property
    def _alone(self) -> bool:
        return self._seat is None or len(self._seat.ids) < 2

    @property
    def _turn(self) -> Turn:
        """Of the next round."""
        assert self._seat is not None
        return self._algorithm.turn(self.rounds.next_round(), self._seat.cycle)

    def _publish(self, step: int) -> Published:
        """Once what came late has joined; what is not finite is named, and not pushed."""
        late, self._late = self._late, []
        for item in late:
            self._apply_late(item)
        published = self.shards.publish(step)
        self._nonfinite(published.nonfinite)
        return published

    async def _event(self, loop: asyncio.AbstractEventLoop) -> None:
        """Until something came, or the machine wants to look again."""
        self._over = loop.create_future()
        timer = loop.call_at(min(self.rounds.wake, loop.time() + LOOK), self._check)
        try:
            await self._over
        finally:
            timer.cancel()

    def _check(self) -> None:
        """Wake who waits in `arrivals`, to look again."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _planned(self, plan: Plan) -> Plan:
        """Another one where the topology's weights are not those of the round."""
        return plan

    def _finished(self, mixed: Mixed) -> Mixed:
        """On the loop: what came of a round, before it is combined."""
        return mixed

    def _message(self, push: Pushed) -> tuple[float, Callable[[Block], Tensor]]:
        """The weight of what is sent, and the value of each block."""
        return push.weight, self._published[push.round].store.piece

    def _push(self, push: Pushed) -> bool:
        weight, value = self._message(push)
        blocks = self.shards.blocks[push.first : push.first + push.count]
        codec = self.coding.of(self._published[push.round].step, blocks[0])
        nbytes = self._framing.nbytes(blocks, codec)
        buffer = self._staging.take(nbytes)
        for index, piece in self._framing.cut(buffer[:nbytes], blocks, codec):
            codec.encode(value(self.shards.blocks[index]), piece)
        payload = writable(buffer[:nbytes])
        shard = self._framing.describe(push.first, push.count, blocks, codec, payload)
        sent = self.post.send(
            push.partner, Push(push.exchange, push.round, weight, self.pace.pulse, shard, self._told), payload
        )
        self._staging.give(buffer, sent)
        self.history.note("pushes to" if sent is not None else "has no room for", push.partner, push.first, push.count)
        self.rounds.link(push.partner).sent += nbytes if sent is not None else 0
        return sent is not None

    def _pushed(self, sender: str, push: Push, payload: memoryview | None, now: float) -> None:
        self.pace.heard(sender, push.pulse)
        if not 0 < push.weight <= 1:
            raise WireError("weight", f"{push.weight} is not in (0, 1]")
        if abs(push.loss) > WORST:
            raise WireError("loss", f"{push.loss} is beyond {WORST}")
        codec, pieces = self._framing.pieces(push.shard, payload, self._framing.range(push.shard.first, push.shard.count))
        blocks = {i: (codec, piece) for i, piece in pieces}
        self.rounds.link(sender).received += payload.nbytes if payload is not None else 0
        shard, load = push.shard, Load(push.pulse.step, push.loss, blocks)
        arrived = self.rounds.pushed(sender, push.exchange, push.round, shard.first, shard.count, push.weight, load, now)
        self.history.note(f"is pushed ({arrived.value}) by", sender, shard.first, shard.count)
        if arrived is Arrived.LATE:
            self._late.append(Late(sender, push.round, push.weight, load))
        if arrived in (Arrived.LATE, Arrived.KEPT):
            self.activity.met(sender, push.pulse)

    def _apply_late(self, late: Late) -> None:
        published = self._published.get(late.round)
        if published is None or self._algorithm.punctual:
            self.rounds.tally.stale += 1
            return
        (weight,) = self._weigh([(late.weight, late.load)], 1.0)
        for index, (codec, data) in late.load.blocks.items():
            self._join_late(late.sender, index, Part(weight, data, codec, late.load.step), published)

    def _join_late(self, sender: str, index: int, part: Part, published: Published) -> None:
        part = part._replace(limit=self.gate.limit(index))
        self._differed(sender, index, self.shards.late(index, part, published))


def loads(mixed: Mixed) -> list[tuple[str, float, Load]]:
    """Per neighbour its weight and all that it pushed in this round."""
    return [(sender, weight, _merged(messages)) for sender, weight, messages in mixed.parts]


def _merged(messages: Mapping[int, object]) -> Load:
    """All messages of a neighbour in one round; what they say of its node is the same, or nearly."""
    loads = [load for load in messages.values() if isinstance(load, Load)]
    return replace(loads[-1], blocks={i: piece for load in loads for i, piece in load.blocks.items()})
