"""The switchboard: every frame is decoded, checked for who sent it, and put through to the part that its message is for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from p2p.agent.records import LIVE
from p2p.errors import WireError
from p2p.net import messages, wire
from p2p.net.keys import node_id, short
from p2p.net.messages import (
    Answer,
    Ask,
    BlocksRequest,
    CallBack,
    Called,
    CalledBack,
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
    Pulse,
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
from p2p.net.transport import Route

if TYPE_CHECKING:
    from p2p.agent.agent import Agent

Handler = Callable[[Envelope, Route, Message, memoryview | None], None]


class Switchboard:
    """One agent's. `rng` draws the member that a guest could ask instead."""

    def __init__(self, agent: Agent, rng: random.Random) -> None:
        self._agent = agent
        self._rng = rng
        self._handlers = self._table()

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        """Handle one frame. Raises WireError for what is malformed, of another swarm, or of no member where one is needed."""
        agent = self._agent
        size = payload.nbytes if payload is not None else None
        envelope, message = wire.decode(header, size)
        if envelope.swarm != agent.who.swarm:
            raise WireError("swarm", "of another swarm")
        if envelope.node == agent.node:
            raise WireError("self", "from this node itself, or from a second one with its key")
        agent.post.came(envelope.node, message, route, len(header) + (size or 0))
        self._handlers[type(message)](envelope, route, message, payload)

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
        self._agent.requests.answered(route, message)

    def _on_visitor(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        """Somebody from outside."""
        agent = self._agent
        if agent.membership is None or agent.node not in agent.view:
            agent.post.answer(route, self._absent(envelope.node))
            return
        if isinstance(message, Hello):
            agent.perform(agent.reception.hello(route, message, agent.loop.time()))
        elif isinstance(message, Knock):
            agent.reception.knock(route, len(agent.view), [record.control for record in self._others(envelope.node)])
        else:
            agent.reception.status(route, agent)

    def _on_membership(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        if self._agent.membership is not None:
            self._agent.perform(self._agent.membership.handle(envelope.node, message, self._agent.loop.time()))

    def _on_exchange(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        agent = self._agent
        now = self._member(envelope, message)
        if agent.exchange is not None and agent.partners(envelope.node):
            agent.exchange.handle(envelope.node, route, message, payload, now)

    def _on_guest(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        """A joiner, or somebody who averages, wants our state."""
        agent = self._agent
        now = self._member(envelope, message)
        if agent.exchange is None or agent.node not in agent.view or agent.arriving:
            if isinstance(message, DonorQuestion | SnapshotRequest):
                agent.post.answer(route, self._absent(envelope.node))
            return
        if isinstance(message, DonorQuestion):
            pulse = Pulse(agent.step_count, agent.exchange.pace.own)
            agent.post.answer(route, DonorAnswer(pulse, agent.origin, agent.donor.guests))
        elif isinstance(message, SnapshotRequest):
            offer = SnapshotOffer(0, agent.step_count, agent.epoch, agent.exchange.round, agent.extras(), b"", b"")
            agent.donor.requested(envelope.node, route, message, offer, now, self._another(envelope.node))
            agent.spawn(agent.donor.fill())
        elif isinstance(message, BlocksRequest):
            agent.donor.blocks(envelope.node, route, message, now)
        else:
            agent.donor.done(envelope.node, now)

    def _on_checkup(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        """Somebody who knows the secret looks before joining."""
        if self._agent.membership is None:
            return
        if isinstance(message, Measure):
            self._agent.checkup.measure(route, message)
        elif isinstance(message, CallBack):
            self._agent.spawn(self._agent.checkup.call_back(route, message))

    def _on_work(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        now = self._member(envelope, message)
        if isinstance(message, Work):
            self._agent.work.handle(envelope.node, message, now)

    def _absent(self, guest: str) -> Refusal:
        """What a node that takes no part says to guests."""
        membership = self._agent.membership
        if membership is not None and membership.record.phase == Phase.LEFT:
            return Refusal("left", f"this node is leaving; try {self._another(guest)}", 0)
        return Refusal("busy", "this node is itself still joining; try again", 0)

    def _another(self, guest: str) -> str:
        """A member that a joiner could ask instead."""
        other = next(iter(self._others(guest)), None)
        return f"node {short(node_id(other.key))} at {other.control}" if other is not None else "again in a while"

    def _others(self, guest: str, most: int = 3) -> list[Record]:
        """Some members that a guest can dial, drawn anew each time."""
        agent = self._agent
        found = [agent.record_of(m.id) for m in agent.view.members if m.id not in (agent.node, guest)]
        able = [record for record in found if record is not None and not record.dial_only]
        return self._rng.sample(able, min(most, len(able)))

    def _on_blocks(self, envelope: Envelope, route: Route, message: Message, payload: memoryview | None) -> None:
        assert isinstance(message, SnapshotBlocks)
        for transfer in self._agent.transfers:
            transfer.received(envelope.node, message, payload)

    def _member(self, envelope: Envelope, message: Message) -> float:
        """Raises WireError for who is no live member; the time, for who is."""
        now, membership = self._agent.loop.time(), self._agent.membership
        info = membership.members.get(envelope.node) if membership is not None else None
        if info is None or membership is None:
            raise WireError("stranger", f"node {short(envelope.node)} is no member")
        membership.heard(envelope.node, envelope.incarnation, now, getattr(message, "pulse", None))
        if info.state not in LIVE:
            raise WireError("stranger", f"node {short(envelope.node)} is {info.state}")
        return now
