"""The agent: the thin asyncio shell of one node. Frames and timers become events; what the machines say is performed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence

from p2p.agent import comeback, terms
from p2p.agent.bell import Bell
from p2p.agent.checkup import Checkup
from p2p.agent.donor import Donor
from p2p.agent.entrance import Door, Entrance, present
from p2p.agent.exchanges import Exchange, make_exchange
from p2p.agent.framing import Framing
from p2p.agent.instructions import Instruction
from p2p.agent.limits import Limits
from p2p.agent.membership import Membership
from p2p.agent.participant import Task, Who
from p2p.agent.performer import Performer
from p2p.agent.post import Post
from p2p.agent.reception import Reception
from p2p.agent.records import State
from p2p.agent.reporter import Reporter, progress
from p2p.agent.requests import Requests
from p2p.agent.seat import Seat
from p2p.agent.swapper import Swapper
from p2p.agent.switchboard import Switchboard
from p2p.agent.transfer import Take, Transfer, Watch, candidates, collect, pull
from p2p.agent.view import View, member_of
from p2p.agent.work import Works
from p2p.config import Config
from p2p.errors import WireError
from p2p.net.keys import verify_record
from p2p.net.messages import Contract, Envelope, Phase, Record, SnapshotOffer
from p2p.net.transport import Route, Transport
from p2p.report import EventLog, Metrics, StepReport
from p2p.state.layout import Block
from p2p.state.shards import Shards
from topology import Links

log = logging.getLogger("starlings")

LINGER = 0.3
"""Seconds that a leaving node goes on, so that the others hear it."""


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
        self.arriving = False  # the state is on its way from others
        self.outdated = False  # far behind; the trainer's next step takes a member's state
        self._links: Links | None = None  # as measured, where the topology looks at them
        self._alone: View | None = None  # exchanging with nobody, while it is not known how far behind
        self.step_count = 0
        self.origin = 0  # the step from which this node trains
        self.epoch = 0
        self.extras: Callable[[], str] = str  # the state of schedule and GradScaler, as JSON
        self.keep: Callable[[int], object] = int  # told of each incarnation, before anybody else is
        self.watch: Watch | None = None  # told how the state of others arrives
        self.took: Callable[[int], None] = lambda index: None  # told of each block of it, before that is exchanged
        self.membership: Membership | None = None
        self.task: Task | None = None
        self.exchange: Exchange | None = None
        self.post = Post(transport, self._envelope, self.record_of, Limits(config.limits), self._now, self._arm)
        self.requests = Requests(self.post)
        self.work = Works(self.node, config.work, rng, who.incarnation << 20, self.post.send, self._arm)
        self._worked = 0  # samples, when the last step was over
        self.report: StepReport | None = None
        self._rng = rng
        self._timer: asyncio.TimerHandle | None = None
        self.changed = asyncio.Event()  # something in the membership did
        self.transfers: list[Transfer] = []
        self._background: set[asyncio.Task[None]] = set()
        self._reporter = Reporter(self)
        self._performer = Performer(self)
        self._switchboard = Switchboard(self, rng)

    # --- in and out of the swarm ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Bind. Raises ListenError."""
        self.loop = asyncio.get_running_loop()
        self._bell = Bell(self.loop, self._stepped)
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
        self.exchange.history.clock = self.loop.time
        self.donor = Donor(task.shards, self.config, self.post, self.who.identity.sign)
        self.framing = Framing(task.shards.blocks)
        self.checkup = Checkup(self.post, sum(block.nbytes for block in task.shards.blocks))
        self.reception = Reception(self.post, task, self.membership)
        self.membership.chart.open(self._rates, self.who.identity.sign, now)
        if known:
            self.membership.know(known, now)
        self.look_around()
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
        await present(self, task, door)

    def ready(self, offer: SnapshotOffer) -> None:
        """The state is in place: become a partner."""
        assert self.exchange is not None
        self.arrived()
        self.step_count, self.origin, self.epoch = offer.step, offer.step, offer.epoch
        self.exchange.resume(offer.step, offer.round, len(self.view) + 1)
        self._reporter.resumed()
        self.announce(Phase.TRAINING)

    async def reenter(self) -> SnapshotOffer | None:
        """Where `outdated`: pull a member's state, for the trainer to apply before it calls `ready`; None if none was there."""
        return await comeback.reenter(self)

    def rejoined(self) -> None:
        """Exchanges may go on."""
        self._alone, self.outdated = None, False
        self.look_around()

    def announce(self, phase: Phase) -> None:
        """Say what this node does now."""
        assert self.membership is not None
        self.perform(self.membership.announce(now=self.loop.time(), phase=phase))
        self._arm()

    async def members(self, count: int, timeout: float) -> bool:
        """Wait until so many members have come, this node included; False if they are fewer at the end.

        Those who have left in good order count: they have finished, and won't come again.
        """
        try:
            async with asyncio.timeout(timeout):
                while len(self.view) + self._finished < count:
                    await self.change()
        except TimeoutError:
            return False
        return True

    @property
    def _finished(self) -> int:
        """Others that were here, and left."""
        known = self.membership.members if self.membership is not None else {}
        return sum(info.state is State.LEFT and node != self.node for node, info in known.items())

    async def change(self) -> None:
        """Wait until something in the membership changes."""
        self.changed.clear()
        await self.changed.wait()

    async def leave(self) -> None:
        """Drain open swaps, say goodbye, hang up; a second call does nothing."""
        try:
            if self.membership is not None and self.exchange is not None:
                self.exchange.close()
                await self._drain()
                self._performer.perform(self.membership.leave(self.loop.time()))
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
            self.task.method.enter()
            self.ready(offer)
        elif not self.early:
            await self._exchanged()
        return self.settle()

    async def _exchanged(self) -> None:
        self.offer()
        await self.arrivals()
        while self.join_in():
            await self.arrivals()

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
        assert self.task is not None and self.exchange is not None
        staleness = self.report.staleness if self.report else 0.0
        step = self.step_count + 1
        self.task.method.before(step, staleness, self.exchange.pace.span, self.exchange.part(step))

    def offer(self) -> None:
        """Trainer and agent meet."""
        assert self.exchange is not None and self.task is not None
        self.step_count += 1
        self.task.method.after()
        self.exchange.silent, self.exchange.loss = self.task.method.silent, self.task.method.told
        self.exchange.training = True
        if self.due:
            self.exchange.offer(self.step_count)
        self._reporter.offered()

    async def arrivals(self) -> None:
        """On the loop: wait for what this step needs of others."""
        assert self.exchange is not None
        if self.due:
            await self.exchange.arrivals()
        self._reporter.arrived()

    def join_in(self) -> bool:
        """What came joins the model; True where the step takes another round, which has begun."""
        assert self.exchange is not None and self.task is not None
        if self.due:
            self.exchange.settle()
            if self.exchange.more:
                self.exchange.offer(self.step_count)
                return True
        self.task.method.mixed(self.exchange.round, self.exchange.losses, len(self.view))
        return False

    def settle(self) -> StepReport:
        """The step is over."""
        self.report = self._reporter.report()
        assert self.exchange is not None
        self._bell.ring(self.step_count, self.loop.time(), self.exchange.patience)
        return self.report

    @property
    def progress(self) -> float:
        """The swarm-wide step: the mean of the live members' as last heard; the own one after leaving."""
        return progress(self)

    # --- events ------------------------------------------------------------------------------------------------------

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        """See Receiver. The one boundary that must not die: whatever a peer sent, the agent goes on."""
        try:
            self._switchboard.received(route, header, payload)
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
            self.perform(self.membership.closed(node, reason, self.loop.time()))
            self._arm()

    def _stepped(self, step: int, now: float) -> None:
        """On the loop: the trainer finished a step."""
        if self.exchange is not None and self.membership is not None:
            self._worked, before = self.work.samples, self._worked
            self.exchange.pace.worked(self._worked - before)
            self.exchange.stepped(step, now)
            self.membership.pulse = self.exchange.pace.pulse
            self._arm()

    def _tick(self) -> None:
        self._timer = None
        self._bell.answer()
        now = self.loop.time()
        if self.membership is None or self.exchange is None:
            return
        if self._wake() <= now:  # else what it was set for has come about, or is due later
            if self.membership.wake <= now:
                self.perform(self.membership.tick(now))
            self.post.release(now)
            self.exchange.tick(now)
            self.donor.sweep(now)
            self.work.tick(now)
            self.events.flush()
        self._arm()

    def _arm(self) -> None:
        """See to it that `_tick` runs when a machine wants it next."""
        if self.membership is None or self.exchange is None:
            return
        wake = self._wake()
        if self._timer is not None:
            if self._timer.when() <= wake:
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(wake, self._tick)

    def _wake(self) -> float:
        """When a machine wants to be ticked next; only for who has entered."""
        assert self.membership is not None and self.exchange is not None
        return min(self.membership.wake, self.exchange.wake, self.work.wake, self.post.wake)

    def perform(self, instructions: Sequence[Instruction]) -> None:
        """Do what the membership says, and look what has come of it."""
        self._performer.perform(instructions)
        self.look_around()

    def returned(self, reason: str) -> None:
        """This node was away: until it knows how far behind it is, it exchanges nothing."""
        if self._alone is None and self.membership is not None and self.membership.record.phase == Phase.TRAINING:
            self._alone = View(member for member in self.view.members if member.id == self.node)
            self.spawn(comeback.look(self, reason))

    def look_around(self) -> None:
        """Take a seat in the view, if it is a new one."""
        assert self.membership is not None and self.exchange is not None and self.task is not None
        self.changed.set()
        view = self._alone or self.membership.view
        links = self.membership.chart.links if self.task.topology.measured else None
        if view is self.view and links is self._links:
            return
        self.view, self._links = view, links
        self.post.limits.seat(self.who.site, [member.site for member in view.members])
        self.work.seat((member.id for member in view.members), self.loop.time())
        self._sit()

    def _sit(self) -> None:
        """Who is still joining sits down beside the members: it asks them, and they don't know of it yet."""
        assert self.membership is not None and self.exchange is not None and self.task is not None
        view = self.view.with_(member_of(self.node, self.who.site, self.who.dial_only)) if self.arriving else self.view
        if self.node in view:
            joining = [node for node, info in self.membership.members.items() if info.state is State.JOINING]
            topology = self.task.topology.given(self._links) if self._links is not None else self.task.topology
            seat = Seat(view, topology, self.node, joining)
            if seat.reason:
                log.warning("%d members: the lazy Metropolis ring stands in: %s", len(view), seat.reason)
            self.exchange.seat(seat, self.loop.time())
            self.task.method.changed(self.exchange.round, len(view))

    def partners(self, node: str) -> bool:
        """Whether this node exchanges with another: both are members, or joining, where blocks are swapped one by one."""
        info = self.membership.members.get(node) if self.membership is not None else None
        if self._alone is not None or info is None:
            return False
        if self.node in self.view and node in self.view:
            return True
        joins = info.state is State.JOINING
        return isinstance(self.exchange, Swapper) and (self.node in self.view or self.arriving) and (node in self.view or joins)

    # --- state of others ---------------------------------------------------------------------------------------------

    def expect(self) -> None:
        """The own state counts no more: that of others is on its way."""
        self.arriving = True
        if self.exchange is not None:
            self.exchange.await_state(len(self.view) + 1)
        self._sit()

    def arrived(self) -> None:
        """There is a state that counts, another's or again the own one."""
        self.arriving = False
        if isinstance(self.exchange, Swapper):
            self.exchange.swaps.arrived()

    async def pull(self, node: str, take: Take, wanted: Sequence[Block]) -> SnapshotOffer:
        """A member's snapshot, block by block. Raises JoinError where it won't or can't, BusyError where it serves others."""
        return await pull(self, node, take, wanted)

    async def pull_from_any(self, shards: Shards, least: int = 0) -> SnapshotOffer:
        """The state of members, as near and as many as suits, that are at step `least` or further.

        Who is gone or busy is passed over, until the time is up; then JoinError says why nobody gave it.
        """
        return await collect(self, shards, self.watch, least)

    async def ahead(self) -> tuple[int, bool]:
        """The furthest step from which a member trains (-1: there is none), and whether any has taken one since."""
        found = [candidate.answer for candidate in await candidates(self, len(self.view) + 1)]
        furthest = max((answer.origin for answer in found), default=-1)
        return furthest, any(answer.pulse.step > answer.origin for answer in found)

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Wait for the answers of own swaps that are open."""
        assert self.exchange is not None
        deadline = self.loop.time() + self.config.join.drain
        while not self.exchange.drained and self.loop.time() < deadline:
            await asyncio.sleep(0.01)

    def spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        """Let it run beside; it ends with the agent."""
        task = self.loop.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _envelope(self) -> Envelope:
        incarnation = self.membership.record.incarnation if self.membership is not None else self.who.incarnation
        links = self._links.version if self._links is not None else 0
        return Envelope(self.who.swarm, self.node, incarnation, self.view.digest ^ links)

    def _rates(self) -> dict[str, tuple[float, float]]:
        """What the exchange has measured of its links."""
        links = self.exchange.links if self.exchange is not None else {}
        return {partner: (link.bandwidth, link.queueing) for partner, link in links.items() if link.rates}

    def _now(self) -> float:
        return self.loop.time()

    def record_of(self, node: str) -> Record | None:
        """A node's signed word, if it is known."""
        info = self.membership.members.get(node) if self.membership is not None else None
        return info.record if info is not None else None
