"""The agent: the thin asyncio shell of one node. Frames and timers become events; what the machines say is performed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

from optim import Algorithm
from p2p.agent import comeback, terms
from p2p.agent.activity import Activity
from p2p.agent.checkup import Checkup
from p2p.agent.donor import Donor
from p2p.agent.entrance import Door, Entrance
from p2p.agent.exchanges import Exchange, make_exchange
from p2p.agent.framing import Framing
from p2p.agent.instructions import Changed, Instruction, Refused, Returned, Send
from p2p.agent.membership import Membership
from p2p.agent.post import Post
from p2p.agent.reception import Reception
from p2p.agent.records import LIVE
from p2p.agent.requests import Requests
from p2p.agent.seat import Seat
from p2p.agent.transfer import Take, Transfer, Watch, candidates, collect, pull
from p2p.agent.view import View
from p2p.agent.work import Works
from p2p.config import Config
from p2p.errors import ClosedError, JoinError, WireError
from p2p.net import messages, wire
from p2p.net.keys import Identity, node_id, verify_record
from p2p.net.messages import (
    Answer,
    Ask,
    BlocksRequest,
    CallBack,
    Called,
    CalledBack,
    Contract,
    DonorAnswer,
    DonorQuestion,
    Envelope,
    Hello,
    Knock,
    Measure,
    Measured,
    Message,
    Nack,
    Phase,
    Ping,
    PingRequest,
    Pong,
    Push,
    Reask,
    Record,
    Refusal,
    Settled,
    SnapshotBlocks,
    SnapshotDone,
    SnapshotOffer,
    SnapshotRequest,
    Status,
    StatusRequest,
    Sync,
    Terms,
    Welcome,
    Work,
)
from p2p.net.transport import Route, Transport
from p2p.report import EventLog, Metrics, StepReport
from p2p.state.layout import Block
from p2p.state.method import Method
from p2p.state.shards import Shards
from topology import Topology

log = logging.getLogger("starlings")

Handler = Callable[[Envelope, Route, Message, memoryview | None], None]

LINGER = 0.3
"""Seconds that a leaving node goes on, so that the others hear it."""
CALL = 10.0
"""Seconds that a dead node has to answer a call: to take the connection, and to shake hands."""
STALE_MIXING = 3.0
"""Steps between two exchanges of one block beyond which label-sorted data is learned slowly, and the log says so."""

REFUSED = {
    "contract": "it belongs to a swarm that trains something else (model, optimizer, algorithm, topology or seed)",
    "incarnation": "its clock is more than a day ahead",
    "conflict": "a second process has this node's key",
}
"""Why news is not taken, in words."""


@dataclass(frozen=True, slots=True)
class Who:
    """A node, for its record and its headers."""

    identity: Identity
    incarnation: int
    swarm: bytes
    site: str = ""
    dial_only: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """What this node trains, and how: what its contract is made of, and the shared state itself."""

    contract: Contract
    algorithm: Algorithm
    topology: Topology
    method: Method
    shards: Shards


class Agent:
    """One node's agent. Its methods run on its event loop, but `before`, `offer`, `join_in` and `settle`: the trainer's."""

    def __init__(self, who: Who, transport: Transport, config: Config, rng: random.Random, events: EventLog) -> None:
        self.who = who
        self.node = who.identity.node
        self.transport = transport
        self.config = config
        self.events = events
        self.metrics = Metrics()
        self.view = View()
        self.outdated = False  # far behind; the trainer's next step takes a member's state
        self._alone: View | None = None  # exchanging with nobody, while it is not known how far behind
        self.step_count = 0
        self.epoch = 0
        self.extras: Callable[[], str] = str  # the state of schedule and GradScaler, as JSON
        self.watch: Watch | None = None  # told how the state of others arrives
        self.membership: Membership | None = None
        self.task: Task | None = None
        self.exchange: Exchange | None = None
        self.post = Post(transport, self._envelope, self._record_of)
        self.requests = Requests(self.post)
        self.work = Works(self.node, config.work, rng, who.incarnation << 20, self.post.send, self._arm)
        self.report: StepReport | None = None
        self._rng = rng
        self._offered = 0.0
        self._waited = 0.0
        self._totals = (0, 0)
        self._mixing = (0, 0.0)  # step and mean round when the mixing interval was last looked at
        self._interval = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self.transfers: list[Transfer] = []
        self._background: set[asyncio.Task[None]] = set()
        self._called: set[str] = set()  # dead nodes with a connection open
        self._handlers = self._table()

    # --- in and out of the swarm ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Bind. Raises ListenError."""
        self.loop = asyncio.get_running_loop()
        await self.transport.start(self)

    async def knock(self, addresses: Sequence[str]) -> Door:
        """Find a member, and the swarm's terms. Raises JoinError, which says per address why not."""
        return await Entrance(self.requests, self.config.join).knock(addresses)

    def enter(self, task: Task, known: Sequence[Record] = (), phase: Phase = Phase.TRAINING) -> None:
        """Take part under this contract: as a founder, or beside nodes that are `known` beforehand."""
        self.task = task
        now = self.loop.time()
        record = self.record(task.contract, phase)
        self.membership = Membership(
            record, self.who.identity.sign_record, verify_record, self.config.membership, self._rng, now
        )
        first_id = self.who.incarnation << 20  # above every id of an earlier incarnation
        self.exchange = make_exchange(task.algorithm, task.shards, self.config, self.post, self.metrics, first_id)
        self.donor = Donor(task.shards, self.config, self.post, self.who.identity.sign)
        self.framing = Framing(task.shards.blocks)
        self.checkup = Checkup(self.post, sum(block.nbytes for block in task.shards.blocks))
        self.reception = Reception(self.post, task, self.membership)
        if known:
            self.membership.know(known, now)
        self._look_around()
        self._arm()

    def record(self, contract: Contract, phase: Phase) -> Record:
        """This node's first word about itself, signed."""
        who = self.who
        unsigned = Record(
            who.identity.key,
            self.transport.control,
            self.transport.data,
            who.incarnation,
            phase,
            who.site,
            who.dial_only,
            terms.digest(contract),
            b"",
        )
        return who.identity.sign_record(unsigned)

    async def join(self, task: Task, door: Door) -> SnapshotOffer:
        """Enter the swarm behind a door, and pull its state; the trainer then applies it and calls `ready`.

        Raises as `present` and `pull_from_any` do.
        """
        await self.present(task, door)
        return await self.pull_from_any(task.shards)

    async def present(self, task: Task, door: Door) -> None:
        """Enter the swarm behind a door, without its state.

        Raises ContractError where the swarm trains something else, JoinError where no member can be reached.
        """
        self.enter(task, phase=Phase.JOINING)
        assert self.membership is not None
        answer = await self.requests.ask(door.route, Hello(task.contract, self.membership.record), self.config.join.answer)
        if isinstance(answer, Refusal):
            raise terms.refused(answer, task.contract, task.shards.schema)
        if not isinstance(answer, Welcome):
            raise JoinError(f"{door.address}: an unexpected answer: {type(answer).__name__}")
        self._perform(self.membership.meet(answer.news, self.loop.time()))
        self._look_around()

    def ready(self, offer: SnapshotOffer) -> None:
        """The state is in place: become a partner."""
        assert self.exchange is not None
        self.step_count, self.epoch = offer.step, offer.epoch
        self.exchange.resume(offer.step, offer.round, len(self.view) + 1)
        self._mixing = (offer.step, self.exchange.mean_round)
        self.announce(Phase.TRAINING)

    async def reenter(self) -> SnapshotOffer | None:
        """Where `outdated`: pull a member's state, for the trainer to apply before it calls `ready`; None if none was there."""
        return await comeback.reenter(self)

    def rejoined(self) -> None:
        """Exchanges may go on."""
        self._alone, self.outdated = None, False
        self._look_around()

    def announce(self, phase: Phase) -> None:
        """Say what this node does now."""
        assert self.membership is not None
        self._perform(self.membership.announce(now=self.loop.time(), phase=phase))
        self._look_around()
        self._arm()

    async def members(self, count: int, timeout: float) -> bool:
        """Wait until so many live members take part, this node included; False if they are fewer at the end."""
        try:
            async with asyncio.timeout(timeout):
                while len(self.view) < count:
                    await self.change()
        except TimeoutError:
            return False
        return True

    async def change(self) -> None:
        """Wait until something in the membership changes."""
        self._changed.clear()
        await self._changed.wait()

    async def leave(self) -> None:
        """Drain open swaps, say goodbye, hang up; a second call does nothing."""
        try:
            if self.membership is not None and self.exchange is not None:
                self.exchange.close()
                await self._drain()
                self._perform(self.membership.leave(self.loop.time()))
                await asyncio.sleep(LINGER if len(self.view) > 1 else 0)
        finally:
            self.membership = None
            if self._timer is not None:
                self._timer.cancel()
            for task in self._background:
                task.cancel()
            await self.transport.close()

    # --- the step: the trainer's thread -----------------------------------------------------------------------------

    async def prepare(self) -> None:
        """What precedes a local update."""
        self.before()
        if self.early:
            await self._exchanged()

    async def step(self) -> StepReport:
        """What follows a local update. `Node` runs the same parts, those that wait on this loop."""
        if self.outdated and (offer := await self.reenter()) and self.task is not None:
            self.task.shards.apply()
            self.ready(offer)
        if not self.early:
            await self._exchanged()
        return self.settle()

    async def _exchanged(self) -> None:
        self.offer()
        await self.arrivals()
        self.join_in()

    @property
    def waits(self) -> bool:
        """Whether a step has to wait for `arrivals`."""
        assert self.exchange is not None
        return self.exchange.waits

    @property
    def due(self) -> bool:
        """Whether an exchange belongs to this step; swaps see to their period themselves."""
        assert self.task is not None
        return self.task.method.due or not self.waits

    @property
    def early(self) -> bool:
        """Whether the exchange comes before the local update."""
        assert self.task is not None
        return self.task.algorithm.early

    def before(self) -> None:
        """Gradients are there: the algorithm sees them before the optimizer does."""
        assert self.task is not None
        self.task.method.before(self.step_count + 1, self.report.staleness if self.report else 0.0)

    def offer(self) -> None:
        """Trainer and agent meet."""
        assert self.exchange is not None and self.task is not None
        self.step_count += 1
        self.task.method.after()
        if self.due:
            self.exchange.offer(self.step_count)
        self._offered = self._waited = self.loop.time()

    async def arrivals(self) -> None:
        """On the loop: wait for what this step needs of others."""
        assert self.exchange is not None
        if self.due:
            await self.exchange.arrivals()
        self._waited = self.loop.time()

    def join_in(self) -> None:
        """What came joins the model."""
        assert self.exchange is not None and self.task is not None
        if self.due:
            self.exchange.settle()
        self.task.method.mixed(self.exchange.round, self.exchange.losses, len(self.view))

    def settle(self) -> StepReport:
        """The step is over."""
        self.report = self._reported()
        try:
            self.loop.call_soon_threadsafe(self._stepped, self.step_count, self.loop.time())
        except RuntimeError:  # the loop is closed: another thread left meanwhile
            raise ClosedError("the node has left the swarm") from None
        return self.report

    @property
    def progress(self) -> float:
        """The swarm-wide step: the mean of the live members' as last heard; the own one after leaving."""
        members = self.membership.members if self.membership is not None else {}
        live = [info for node, info in members.items() if info.state in LIVE and node != self.node]
        steps = [info.pulse.step for info in live if info.pulse.step]
        return (self.step_count + sum(steps)) / (1 + len(steps))

    def _reported(self) -> StepReport:
        exchange = self.exchange
        assert exchange is not None
        activity, exchange.activity = exchange.activity, Activity()
        sent, received = self.post.sent, self.post.received
        before, self._totals = self._totals, (sent, received)
        distance = activity.distance()
        return StepReport(
            step=self.step_count,
            round=exchange.round,
            partners=tuple(sorted(short(p) for p in activity.partners)),
            sent=sent - before[0],
            received=received - before[1],
            staleness=activity.staleness(self.step_count),
            wait=self._waited - self._offered,
            distance=distance if distance is not None else (self.report.distance if self.report else 0.0),
            skipped=tuple(sorted(map(short, activity.skipped))),
            slow=tuple(sorted(map(short, exchange.slow(self.loop.time())))),
            mixing_interval=self._mixing_interval(),
        )

    def _mixing_interval(self) -> float:
        """Steps between two own exchanges of one block, looked at every 20 steps."""
        assert self.exchange is not None
        step, rounds = self._mixing
        if self.step_count - step >= 20:
            now = self.exchange.mean_round
            self._interval = (self.step_count - step) / max(now - rounds, 1e-9) if len(self.view) > 1 else 0.0
            self._mixing = (self.step_count, now)
            if STALE_MIXING * self._wanted_interval() < self._interval < 1e6:
                log.warning(
                    "a block is exchanged every %.1f steps only: label-sorted data is learned slowly over such links",
                    self._interval,
                )
        return self._interval

    def _wanted_interval(self) -> int:
        """Steps between two exchanges, by the algorithm."""
        assert self.task is not None
        return self.task.algorithm.interval(self.step_count)

    # --- events ------------------------------------------------------------------------------------------------------

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        """See Receiver. The one boundary that must not die: whatever a peer sent, the agent goes on."""
        try:
            self._received(route, header, payload)
        except WireError as error:
            self.metrics.add("messages_rejected", error.reason)
            log.debug("message rejected: %s", error)
        except Exception:
            self.metrics.add("messages_rejected", "internal")
            log.exception("a message could not be handled")
        self._arm()

    def lost(self, route: Route, reason: str) -> None:
        """See Receiver."""
        self.requests.lost(route, reason)
        node = self.post.owner(route)
        for transfer in self.transfers:
            transfer.broke(node or "")
        if node is not None and self.membership is not None:
            self._perform(self.membership.closed(node, reason, self.loop.time()))
            self._look_around()
            self._arm()

    def _received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        size = payload.nbytes if payload is not None else None
        envelope, message = wire.decode(header, size)
        if envelope.swarm != self.who.swarm:
            raise WireError("swarm", "of another swarm")
        if envelope.node == self.node:
            raise WireError("self", "from this node itself, or from a second one with its key")
        self.post.came(envelope.node, message, route, len(header) + (size or 0))
        self._handlers[type(message)](envelope, route, message, payload)

    def _stepped(self, step: int, now: float) -> None:
        """On the loop: the trainer finished a step."""
        if self.exchange is not None and self.membership is not None:
            self.exchange.stepped(step, now)
            self.membership.pulse = self.exchange.pace.pulse
            self._arm()

    def _tick(self) -> None:
        self._timer = None
        now = self.loop.time()
        if self.membership is None or self.exchange is None:
            return
        self._perform(self.membership.tick(now))
        self._look_around()
        self.exchange.tick(now)
        self.donor.sweep(now)
        self.work.tick(now)
        self.events.flush()
        self._arm()

    def _arm(self) -> None:
        """See to it that `_tick` runs when a machine wants it next."""
        if self.membership is None or self.exchange is None:
            return
        wake = min(self.membership.wake, self.exchange.wake, self.work.wake)
        if self._timer is not None:
            if self._timer.when() <= wake:
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(wake, self._tick)

    def _perform(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Send):
                self._tell(instruction)
            elif isinstance(instruction, Changed):
                self._note(instruction)
            elif isinstance(instruction, Returned):
                self._returned(instruction.reason)
            elif isinstance(instruction, Refused):
                self.metrics.add("news_refused", instruction.reason)
                log.warning(
                    "news from node %s refused: %s",
                    short(instruction.node),
                    REFUSED.get(instruction.reason, instruction.reason),
                )

    def _tell(self, instruction: Send) -> None:
        """The dead are called now and then, and not stayed connected to: every one would cost a socket, for good."""
        node = instruction.node
        self.post.send(node, instruction.message)
        if node not in self._called and self._is_gone(node):
            self._called.add(node)
            self.loop.call_later(CALL, self._hang_up, node)

    def _hang_up(self, node: str) -> None:
        self._called.discard(node)
        if self._is_gone(node):
            self.post.hang_up(node)

    def _is_gone(self, node: str) -> bool:
        info = self.membership.members.get(node) if self.membership is not None else None
        return info is not None and info.state not in LIVE

    def _note(self, change: Changed) -> None:
        log.info("node %s %s: %s", short(change.node), change.event, change.reason)
        self.metrics.add("membership_events", change.event)
        before = str(change.before) if change.before else ""
        self.events.write("member", node=short(change.node), before=before, after=str(change.after), reason=change.reason)
        if change.after not in LIVE:
            self.post.hang_up(change.node)
        self._changed.set()

    def _returned(self, reason: str) -> None:
        """This node was away: until it knows how far behind it is, it exchanges nothing."""
        if self._alone is None and self.membership is not None and self.membership.record.phase == Phase.TRAINING:
            self._alone = View(member for member in self.view.members if member.id == self.node)
            self._spawn(comeback.look(self, reason))

    def _look_around(self) -> None:
        """Take a seat in the view, if it is a new one."""
        assert self.membership is not None and self.exchange is not None and self.task is not None
        self._changed.set()
        view = self._alone or self.membership.view
        if view is self.view:
            return
        self.view = view
        self.work.seat((member.id for member in view.members), self.loop.time())
        if self.node in view:
            seat = Seat(view, self.task.topology, self.node)
            if seat.reason:
                log.warning("%d members: the lazy Metropolis ring stands in: %s", len(view), seat.reason)
            self.exchange.seat(seat, self.loop.time())
            self.task.method.changed(self.exchange.round, len(view))

    # --- messages ----------------------------------------------------------------------------------------------------

    def _table(self) -> dict[type, Handler]:
        return {
            **dict.fromkeys((Knock, Hello, StatusRequest), self._on_visitor),
            **dict.fromkeys((Terms, Welcome, Refusal, DonorAnswer, SnapshotOffer, Status), self._on_answer),
            **dict.fromkeys((Ping, Pong, PingRequest, Nack, messages.Gossip, Sync), self._on_membership),
            **dict.fromkeys((Ask, Answer, Reask, Push, Settled), self._on_exchange),
            **dict.fromkeys((DonorQuestion, SnapshotRequest, BlocksRequest, SnapshotDone), self._on_guest),
            SnapshotBlocks: self._on_blocks,
            Work: self._on_work,
            **dict.fromkeys((Measure, CallBack), self._on_checkup),
            **dict.fromkeys((Measured, Called, CalledBack), self._on_answer),
        }

    def _on_answer(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        self.requests.answered(route, message)

    def _on_visitor(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        """Somebody from outside."""
        if self.membership is None or self.node not in self.view:
            self.post.answer(route, Refusal("busy", "this node is itself still joining; try again", 0))
            return
        if isinstance(message, Hello):
            self._perform(self.reception.hello(route, message, self.loop.time()))
            self._look_around()
        elif isinstance(message, Knock):
            self.reception.knock(route, len(self.view))
        else:
            self.reception.status(route, self)

    def _on_membership(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        if self.membership is not None:
            self._perform(self.membership.handle(envelope.node, message, self.loop.time()))
            self._look_around()

    def _on_exchange(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        now = self._member(envelope, message)
        if self.exchange is not None and envelope.node in self.view and self.node in self.view:
            self.exchange.handle(envelope.node, route, message, payload, now)

    def _on_guest(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        """A joiner, or somebody who averages, wants our state."""
        now = self._member(envelope, message)
        if self.exchange is None or self.node not in self.view:
            return
        if isinstance(message, DonorQuestion):
            self.post.answer(route, DonorAnswer(self.step_count, self.report is not None, self.donor.guests))
        elif isinstance(message, SnapshotRequest):
            offer = SnapshotOffer(0, self.step_count, self.epoch, self.exchange.round, self.extras(), b"")
            self._spawn(self.donor.requested(envelope.node, route, offer, now, self._another(envelope.node)))
        elif isinstance(message, BlocksRequest):
            self.donor.blocks(envelope.node, route, message, now)
        else:
            self.donor.done(envelope.node, now)

    def _on_checkup(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        """Somebody who knows the secret looks before joining."""
        if self.membership is None:
            return
        if isinstance(message, Measure):
            self.checkup.measure(route, message)
        elif isinstance(message, CallBack):
            self._spawn(self.checkup.call_back(route, message))

    def _on_work(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        now = self._member(envelope, message)
        if isinstance(message, Work):
            self.work.handle(envelope.node, message, now)

    def _another(self, guest: str) -> str:
        """A member that a joiner could ask instead."""
        others = [m.id for m in self.view.members if m.id not in (self.node, guest)]
        other = self._record_of(self._rng.choice(others)) if others else None
        return f"node {short(node_id(other.key))} at {other.control}" if other is not None else "again in a while"

    def _on_blocks(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        assert isinstance(message, SnapshotBlocks)
        for transfer in self.transfers:
            transfer.received(envelope.node, message, payload)

    def _member(self, envelope: Envelope, message: Message) -> float:
        """Raises WireError for who is no live member; the time, for who is."""
        now = self.loop.time()
        info = self.membership.members.get(envelope.node) if self.membership is not None else None
        if info is None or self.membership is None:
            raise WireError("stranger", f"node {short(envelope.node)} is no member")
        self.membership.heard(envelope.node, envelope.incarnation, now, getattr(message, "pulse", None))
        if info.state not in LIVE:
            raise WireError("stranger", f"node {short(envelope.node)} is {info.state}")
        return now

    # --- state of others ---------------------------------------------------------------------------------------------

    async def pull(self, node: str, take: Take, wanted: Sequence[Block]) -> SnapshotOffer:
        """A member's snapshot, block by block. Raises JoinError where it won't or can't, BusyError where it serves others."""
        return await pull(self, node, take, wanted)

    async def pull_from_any(self, shards: Shards, least: int = 0) -> SnapshotOffer:
        """The state of members, as near and as many as suits, that are at step `least` or further.

        Who is gone or busy is passed over, until the time is up; then JoinError says why nobody gave it.
        """
        return await collect(self, shards, self.watch, least)

    async def ahead(self) -> tuple[int, bool]:
        """The step of the member that is furthest (-1: there is none), and whether any has taken a step since it started."""
        found = [candidate.answer for candidate in await candidates(self, len(self.view) + 1)]
        return max((answer.step for answer in found), default=-1), any(answer.begun for answer in found)

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Wait for the answers of own swaps that are open."""
        assert self.exchange is not None
        deadline = self.loop.time() + self.config.join.drain
        while not self.exchange.drained and self.loop.time() < deadline:
            await asyncio.sleep(0.01)

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = self.loop.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _envelope(self) -> Envelope:
        incarnation = self.membership.record.incarnation if self.membership is not None else self.who.incarnation
        return Envelope(self.who.swarm, self.node, incarnation, self.view.digest)

    def _record_of(self, node: str) -> Record | None:
        info = self.membership.members.get(node) if self.membership is not None else None
        return info.record if info is not None else None


def short(node: str) -> str:
    """The first ten digits of a node id, for people."""
    return node[:10]
