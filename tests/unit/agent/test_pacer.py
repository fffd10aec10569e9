"""Limits: what passes in a second, whose turn it is, and what the post makes of it."""

from __future__ import annotations

import math
import random

import pytest

from p2p.agent.limits import Limits
from p2p.agent.pacer import RETRY, SLACK, Bucket, Pacer, Queued
from p2p.config import LimitConfig


class World:
    """Flows that are always backlogged, and what left when."""

    def __init__(self, late: float = 0.0, seed: int = 0) -> None:
        self.now = 0.0
        self.left: list[tuple[float, str, int]] = []
        self.full: set[str] = set()
        self.pacer: Pacer[tuple[str, int]] = Pacer(self._send)
        self._late, self._rng = late, random.Random(seed)

    def _send(self, item: tuple[str, int]) -> bool:
        if item[0] in self.full:
            return False
        self.left.append((self.now, *item))
        return True

    def put(self, flow: str, nbytes: int, *limits: Bucket) -> None:
        self.pacer.put(flow, Queued((flow, nbytes), nbytes, limits), self.now)

    def run(self, until: float) -> None:
        while self.pacer.wake <= until:
            self.now = max(self.now, self.pacer.wake) + self._late * self._rng.random()
            self.pacer.release(self.now)
        self.now = until

    def passed(self, flow: str = "", begin: float = 0.0, end: float = math.inf) -> int:
        return sum(nbytes for at, name, nbytes in self.left if flow in name and begin <= at < end)


@pytest.mark.parametrize("late", [0.0, 0.01])
@pytest.mark.parametrize("rate", [2.5e6, 12.5e6])
def test_no_second_carries_more_than_the_limit_and_none_much_less(rate: float, late: float) -> None:
    """20 and 100 Mbit, messages of up to 40 ms, timers up to 10 ms late."""
    world, bucket, rng, longest = World(late), Bucket(rate), random.Random(1), int(0.04 * rate)
    for _ in range(2000):
        world.put("a", rng.randrange(1000, longest), bucket)
    world.run(20.0)
    for begin in (rng.uniform(0, 19) for _ in range(300)):
        passed = world.passed("", begin, begin + 1)
        assert passed <= rate * (1 + SLACK) + longest
        assert passed >= rate * 0.95
    assert world.passed() == pytest.approx(20 * rate, rel=0.01)


def test_what_waits_is_sent_at_once_when_the_limit_allows_it_and_never_saved_up() -> None:
    world, bucket = World(), Bucket(1000.0)
    world.run(100.0)
    for _ in range(3):
        world.put("a", 500, bucket)
    world.run(110.0)
    assert [round(at, 6) for at, _, _ in world.left] == [100.0, 100.48, 100.98], "one message, and the slack"


def test_partners_share_a_limit_evenly_whatever_the_length_of_their_messages() -> None:
    world, bucket = World(), Bucket(1e6)
    for i in range(3000):
        world.put("a", 50_000, bucket)
        if i < 2000:
            world.put("b", 1000, bucket)
            world.put("c", 20_000, bucket)
    world.run(5.0)
    for flow in "abc":
        assert world.passed(flow) / world.passed() == pytest.approx(1 / 3, abs=0.02)
    late = World()
    for _ in range(1000):
        late.put("a", 10_000, bucket := bucket if late.left else Bucket(1e6))
    late.run(2.0)
    for _ in range(1000):
        late.put("b", 10_000, bucket)
    late.run(4.0)
    assert late.passed("b", 2.0) == pytest.approx(late.passed("a", 2.0), rel=0.03), "who was silent has saved up nothing"


def test_one_partner_stays_in_order_and_another_does_not_wait_for_its_limits() -> None:
    world, uplink, thin = World(), Bucket(1e6), Bucket(1e4)
    for i in range(10):
        world.put("thin", 1000 + i, uplink, thin)
        world.put("fat", 100_000, uplink)
    world.run(0.5)
    assert [n for _, flow, n in world.left if flow == "thin"] == [1000, 1001, 1002, 1003, 1004]
    assert world.passed("fat") == 500_000


def test_a_connection_without_room_is_tried_again_and_holds_nobody_up() -> None:
    world, bucket = World(), Bucket(1e6)
    world.full = {"a"}
    world.put("a", 10, bucket)
    world.put("b", 10, bucket)
    assert [flow for _, flow, _ in world.left] == ["b"]
    world.full = set()
    world.run(RETRY * 1.01)
    assert [flow for _, flow, _ in world.left] == ["b", "a"]
    assert (world.pacer.wake, world.pacer.waiting("a")) == (math.inf, 0)


def test_what_waits_for_a_partner_that_is_gone_is_handed_back() -> None:
    world, bucket = World(), Bucket(1.0)
    for n in (1, 2, 3):
        world.put("a", n, bucket)
    assert world.pacer.waiting("a") == 5
    assert world.pacer.drop("a") == [("a", 2), ("a", 3)]
    assert world.pacer.wake == math.inf


@pytest.mark.parametrize(
    ("sites", "to", "rates"),
    [
        (["eu", "us"], "us", [100.0, math.inf, 60.0]),
        (["eu", "eu", "eu", "us"], "us", [100.0, math.inf, 20.0]),  # a third of it
        (["eu", "us"], "eu", [100.0, math.inf]),
        (["eu", "asia"], "asia", [100.0, math.inf]),
        ([], "us", [100.0, math.inf]),
    ],
)
def test_a_limit_between_sites_is_shared_by_the_nodes_of_a_site(sites: list[str], to: str, rates: list[float]) -> None:
    limits = Limits(LimitConfig(uplink=100.0, wan=(("us", "eu", 60.0),)))
    limits.seat("eu", sites)
    assert [bucket.rate for bucket in limits.to(to)] == rates


def test_without_limits_nothing_is_looked_at() -> None:
    assert not Limits(LimitConfig()).active
    assert Limits(LimitConfig(downlink=5.0)).active
