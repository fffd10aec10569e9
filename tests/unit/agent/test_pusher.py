"""Rounds carried out: when a wait ends, what travels, and what becomes of late blocks. Virtual time, real shards."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import optim
import topology
from optim import Kind
from optim.codec import RAW, writable
from p2p.agent.framing import EMPTY as EMPTY_SHARD
from p2p.agent.framing import Framing
from p2p.agent.pusher import Pusher
from p2p.agent.seat import Seat
from p2p.agent.view import View
from p2p.config import LAN, DeadlineConfig
from p2p.errors import WireError
from p2p.net.messages import Answer, Message, Pulse, Push, Reask, Settled
from p2p.report import Metrics
from p2p.sim.clock import run
from p2p.state.shards import Shards
from tests.simulation.swap_world import CONFIG, Plain
from topology import Member

ME, OTHER, THIRD = "a", "b", "c"
CONFIGURED = replace(LAN, exchange=CONFIG)


@dataclass
class Leaving:
    done: bool = True


class Outbox:
    """A Post that keeps what is sent, payloads copied as a network would."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message, torch.Tensor | None]] = []
        self.full = False
        self.arrived: Callable[[str, int], object] | None = None  # what a push that arrives does; None: it is lost

    def send(self, node: str, message: Message, payload: memoryview | None = None) -> Leaving | None:
        if self.full:
            return None
        data = torch.frombuffer(bytearray(payload), dtype=torch.float64) if payload is not None else None
        self.sent.append((node, message, data))
        if isinstance(message, Push) and self.arrived is not None:
            asyncio.get_running_loop().call_soon(self.arrived, node, message.exchange)
        return Leaving()

    answer = send


class Scene:
    """One pusher with a model of 20 numbers: 8, 8 and 4 in three blocks, all in one message."""

    def __init__(
        self, members: tuple[str, ...] = (ME, OTHER), deadline: str = "off", value: float = 0.0, name: str = "gossip"
    ) -> None:
        self.x = torch.full((20,), value, dtype=torch.float64)
        self.shards = Shards([Plain("weight", Kind.PARAMETER, self.x)], block_bytes=64, live=False)
        self.out, self.metrics = Outbox(), Metrics()
        self.out.arrived = self.receipt
        config = replace(CONFIGURED, deadline=DeadlineConfig())
        algorithm: Any = optim.make(f"{name}:deadline={deadline}")
        self.pusher = Pusher(self.shards, algorithm, config, self.out, self.metrics, 0)  # type: ignore[arg-type]
        self.view(members)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def view(self, members: tuple[str, ...]) -> None:
        view = View(Member(node) for node in members)
        self.pusher.seat(Seat(view, topology.make("complete"), ME), asyncio.get_running_loop().time())

    def hear(
        self,
        round: int,
        value: float,
        node: str = OTHER,
        weight: float = 0.5,
        exchange: int = 0,
        step: int = 1,
        loss: float = 0.0,
    ) -> None:
        payload = writable(torch.full((20,), value, dtype=torch.float64))
        shard = Framing(self.shards.blocks).describe(0, 3, self.shards.blocks, RAW, payload)
        self.pusher.handle(node, node, Push(exchange, round, weight, Pulse(step, 1.0), shard, loss), payload, self.now)

    def receipt(self, node: str, exchange: int) -> None:
        self.pusher.handle(node, node, Settled((exchange,)), None, self.now)

    async def step(self, number: int) -> float:
        """One whole step; how long it waited."""
        began = self.now
        self.pusher.offer(number)
        await self.pusher.arrivals()
        self.pusher.settle()
        return self.now - began

    def later(self, delay: float, call: Callable[..., object], *args: object) -> None:
        asyncio.get_running_loop().call_later(delay, call, *args)

    def pushes(self) -> list[tuple[str, int, float]]:
        return [(node, m.round, float(x[0])) for node, m, x in self.out.sent if isinstance(m, Push) and x is not None]


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """The test runs in virtual time."""

    def wrapped() -> None:
        run(test())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


@virtual
async def test_a_round_combines_what_came() -> None:
    scene = Scene(value=2.0)
    scene.later(3.0, scene.hear, 0, 6.0)
    assert await scene.step(1) == 3.0
    assert scene.x.tolist() == [4.0] * 20
    assert scene.pushes() == [(OTHER, 0, 2.0)]
    assert [m for _, m, _ in scene.out.sent if isinstance(m, Settled)] == [Settled((0,))]


@virtual
async def test_who_is_alone_waits_for_nothing_and_changes_nothing() -> None:
    scene = Scene(members=(ME,), value=2.0)
    assert await scene.step(1) == 0.0
    assert (scene.x.tolist(), scene.out.sent, scene.pusher.round) == ([2.0] * 20, [], 0)


@virtual
async def test_the_wait_ends_when_the_last_partner_is_gone() -> None:
    scene = Scene(value=2.0)
    scene.later(7.0, scene.view, (ME,))
    assert await scene.step(1) == 7.0
    assert scene.x.tolist() == [2.0] * 20


@virtual
async def test_a_change_of_the_view_bounds_a_wait_that_has_begun() -> None:
    scene = Scene(value=2.0)
    scene.later(7.0, scene.view, (ME, OTHER, THIRD))
    assert await scene.step(1) == pytest.approx(9.0)
    assert scene.x.tolist() == [2.0] * 20


@virtual
async def test_the_wait_ends_when_the_exchange_is_closed() -> None:
    scene = Scene()
    scene.later(5.0, scene.pusher.close)
    assert await scene.step(1) == 5.0
    assert await scene.step(2) == 0.0


@virtual
async def test_a_full_connection_does_not_stop_the_clock() -> None:
    scene = Scene(value=2.0)
    scene.out.full = True
    scene.later(1.0, setattr, scene.out, "full", False)
    scene.later(3.0, scene.hear, 0, 6.0)
    assert await scene.step(1) == 3.0
    assert scene.pushes() == [(OTHER, 0, 2.0)]


@virtual
async def test_late_blocks_join_once_with_the_state_of_their_round() -> None:
    scene = Scene(deadline="adaptive")
    scene.pusher.rounds.neighbour(OTHER).lags[0].append(0.1)
    assert await scene.step(1) == pytest.approx(0.4)
    scene.x.fill_(100.0)  # the trainer has gone on
    scene.hear(0, 8.0)
    assert scene.x.tolist() == [100.0] * 20, "what is late waits for the trainer"
    scene.pusher.offer(2)
    assert scene.x.tolist() == [104.0] * 20  # 100 + (8 - 0) / 2
    scene.pusher.offer(3)
    assert scene.x.tolist() == [104.0] * 20
    assert scene.pusher.rounds.tally.late == 1


@virtual
async def test_late_blocks_have_the_weight_of_their_age() -> None:
    scene = Scene(deadline="adaptive", name="aged")
    scene.pusher.rounds.neighbour(OTHER).lags[0].append(0.1)
    await scene.step(1)
    scene.pusher.stepped(10, scene.now)
    scene.hear(0, 8.0, step=2)
    scene.pusher.offer(2)
    assert scene.x.tolist() == [8 / 2 / 3] * 20  # (1 + 8)^-1/2


@virtual
async def test_what_compares_losses_takes_the_least_and_nothing_that_is_late() -> None:
    scene = Scene(deadline="adaptive", name="pso")
    scene.pusher.loss = 3.0
    scene.pusher.rounds.neighbour(OTHER).lags[0].append(0.1)
    scene.later(0.0, scene.hear, 0, 8.0, OTHER, 0.5, 0, 1, 2.0)
    await scene.step(1)
    assert scene.x.tolist() == [8.0] * 20
    scene.later(0.0, scene.hear, 1, 6.0, OTHER, 0.5, 1, 1, 4.0)
    await scene.step(2)
    assert scene.x.tolist() == [8.0] * 20
    await scene.step(3)
    scene.hear(2, 5.0, exchange=2, loss=-1.0)
    scene.pusher.offer(4)
    assert (scene.x.tolist(), scene.pusher.rounds.tally.stale) == ([8.0] * 20, 1)


@virtual
async def test_after_training_losses_count_no_longer() -> None:
    scene = Scene(name="pso", value=2.0)
    scene.pusher.training = False
    scene.later(0.0, scene.hear, 0, 6.0, OTHER, 0.5, 0, 1, -1.0)
    await scene.step(1)
    assert scene.x.tolist() == [4.0] * 20


@pytest.mark.parametrize("loss", [2e30, -2e30])
def test_a_loss_beyond_all_bounds_is_refused(loss: float) -> None:
    @virtual
    async def refused() -> None:
        with pytest.raises(WireError, match="loss"):
            Scene().hear(0, 6.0, loss=loss)

    refused()


@pytest.mark.parametrize(("loss", "sent"), [(0.5, 0.5), (math.inf, 1e30), (math.nan, 1e30), (-1e40, -1e30)])
def test_what_is_no_finite_loss_travels_as_the_largest(loss: float, sent: float) -> None:
    @virtual
    async def pushed() -> None:
        scene = Scene()
        scene.pusher.loss = loss
        scene.later(0.0, scene.hear, 0, 6.0)
        await scene.step(1)
        assert [m.loss for _, m, _ in scene.out.sent if isinstance(m, Push)] == [sent]

    pushed()


@virtual
async def test_what_is_late_after_years_alone_is_dropped() -> None:
    scene = Scene(deadline="adaptive")
    scene.pusher.rounds.neighbour(OTHER).lags[0].append(0.1)
    await scene.step(1)
    scene.view((ME,))
    for number in range(2, 6):
        await scene.step(number)
    scene.view((ME, OTHER))
    scene.hear(0, 8.0)
    scene.pusher.offer(6)
    assert (scene.x.tolist(), scene.pusher.rounds.tally.stale) == ([0.0] * 20, 1)


@virtual
async def test_what_travels_is_what_was_published() -> None:
    """Pushes may wait for room while the trainer goes on writing to its model."""
    scene = Scene(deadline="adaptive", value=2.0)
    scene.pusher.rounds.neighbour(OTHER).lags[0].append(0.1)
    scene.out.full = True
    await scene.step(1)
    scene.x.fill_(77.0)
    scene.out.full = False
    scene.pusher.tick(scene.now + 1.0)
    assert scene.pushes() == [(OTHER, 0, 2.0)]


@virtual
async def test_a_state_that_is_not_finite_is_not_pushed_and_named() -> None:
    scene = Scene(deadline="adaptive", value=2.0)
    scene.pusher.rounds.neighbour(OTHER).lags[0].append(0.1)
    scene.x[3] = torch.nan
    await scene.step(1)
    assert scene.pushes() == []
    assert scene.metrics.snapshot()[("non_finite", "weight")] == 1
    scene.x.fill_(1.0)
    await scene.step(2)
    assert scene.pushes() == [(OTHER, 1, 1.0)], "credit was not lost to what never left"


@virtual
async def test_a_question_is_answered_after_the_receipts() -> None:
    scene = Scene()
    scene.pusher.rounds.pushed(OTHER, 4, 0, 0, 3, 0.5, None, 0.0)
    scene.pusher.handle(OTHER, OTHER, Reask(4), None, 0.0)
    scene.pusher.handle(OTHER, OTHER, Reask(5), None, 0.0)
    first, *rest = [m for _, m, _ in scene.out.sent]
    assert first == Settled((4,))
    assert [(m.exchange, m.accepted) for m in rest if isinstance(m, Answer)] == [(4, 1), (5, 0)]


@virtual
async def test_a_push_that_was_lost_is_asked_about_and_sent_again() -> None:
    scene = Scene(value=2.0)
    scene.out.arrived = None
    scene.later(0.9, setattr, scene.out, "arrived", scene.receipt)
    scene.later(1.0, lambda: scene.pusher.handle(OTHER, OTHER, Answer(0, 0, 0.0, Pulse(1, 1.0), EMPTY_SHARD), None, 1.0))
    scene.later(2.0, scene.hear, 0, 6.0)
    await scene.step(1)
    assert Reask(0) in [m for _, m, _ in scene.out.sent]
    assert scene.pushes() == [(OTHER, 0, 2.0)] * 2
    assert scene.x.tolist() == [4.0] * 20


@virtual
async def test_a_joiner_begins_in_the_round_after_its_donors() -> None:
    scene = Scene(value=2.0)
    scene.pusher.resume(step=40, round=17, members=2)
    scene.hear(18, 6.0)
    assert await scene.step(41) == 0.0
    assert (scene.pusher.round, scene.x.tolist()) == (18, [4.0] * 20)
