"""Relays: who hears whose model, with which share, and what is kept back."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

import optim
import topology
from p2p.agent.relay import RelayPusher
from p2p.agent.seat import Seat
from p2p.agent.view import View
from p2p.net.messages import Push
from tests.unit.agent.test_pusher import CONFIGURED, ME, OTHER, THIRD, Scene, virtual
from topology import Member


class Centre(Scene):
    """The middle of a star of three, with a model of 2."""

    graph = "star"

    def __init__(self) -> None:
        super().__init__(value=2.0)
        algorithm: Any = optim.make("relay-sum:deadline=off,clip=0")
        self.pusher = RelayPusher(self.shards, algorithm, CONFIGURED, self.out, self.metrics, 0)  # type: ignore[arg-type]
        self.view((ME, OTHER, THIRD))

    def view(self, members: tuple[str, ...]) -> None:
        view = View(Member(node) for node in members)
        self.pusher.seat(Seat(view, topology.make(self.graph), ME), asyncio.get_running_loop().time())

    async def round(self, number: int, other: float, third: float, share: float = 1 / 3) -> None:
        self.later(0.1, self.hear, number, other, OTHER, share, 2 * number)
        self.later(0.2, self.hear, number, third, THIRD, share, 2 * number)
        await self.step(number + 1)

    def shares(self) -> list[float]:
        return [round(m.weight * 3, 9) for _, m, _ in self.out.sent if isinstance(m, Push)]


@virtual
async def test_each_neighbour_hears_of_the_others_and_never_of_itself() -> None:
    scene = Centre()
    await scene.round(0, 5.0, 8.0)
    assert scene.x.tolist() == [5.0] * 20
    await scene.round(1, 5.0, 8.0)
    first, second = scene.pushes()[:2], scene.pushes()[2:]
    assert first == [(OTHER, 0, 2.0), (THIRD, 0, 2.0)]
    assert second == [(OTHER, 1, (5.0 + 8.0) / 2), (THIRD, 1, (5.0 + 5.0) / 2)]
    assert scene.shares() == [1, 1, 2, 2]


@virtual
async def test_what_is_not_finite_counts_for_nothing_and_is_not_relayed() -> None:
    scene = Centre()
    await scene.round(0, 5.0, math.nan)
    assert scene.x.tolist() == pytest.approx([3.0] * 20)
    await scene.round(1, 5.0, 8.0)
    assert [value for _, _, value in scene.pushes()[2:]] == pytest.approx([3.0, 4.0])
    assert scene.shares()[2:] == [1, 2]


@virtual
async def test_in_another_tree_relays_begin_anew() -> None:
    scene = Centre()
    await scene.round(0, 5.0, 8.0)
    scene.view((ME, OTHER, THIRD))
    await scene.round(1, 5.0, 8.0)
    assert scene.shares()[2:] == [1, 1]


@virtual
async def test_whatever_the_neighbours_say_the_own_model_keeps_its_share() -> None:
    scene = Centre()
    await scene.round(0, 5.0, 8.0, share=0.9)
    assert scene.x.tolist() == pytest.approx([5.0] * 20)


@virtual
async def test_on_what_is_no_tree_it_is_gossip() -> None:
    scene = Centre()
    scene.graph = "complete"
    scene.view((ME, OTHER, THIRD))
    await scene.round(0, 5.0, 8.0)
    await scene.round(1, 5.0, 8.0)
    assert scene.pushes()[2:] == [(OTHER, 1, 5.0), (THIRD, 1, 5.0)]
