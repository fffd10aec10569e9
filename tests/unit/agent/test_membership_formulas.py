"""Lifeguard's and memberlist's formulas, against literal numbers; the parts without a swarm around them."""

import math
import random
from dataclasses import replace

import pytest

from p2p.agent.dissemination import Dissemination, retransmit_limit
from p2p.agent.probing import ProbeOrder
from p2p.agent.records import boot_incarnation
from p2p.agent.suspicion import (
    LocalHealth,
    RoundTrips,
    Suspicion,
    confirmations_wanted,
    suspicion_bounds,
    suspicion_timeout,
    sync_period,
)
from p2p.agent.timers import Timers
from p2p.config import LAN, TEST, WAN, MembershipConfig
from p2p.net.messages import Accusation

CONFIG = LAN.membership


@pytest.mark.parametrize(
    ("live", "shortest", "longest"),
    [(1, 10.0, 40.0), (10, 10.0, 40.0), (46, 10.0, 40.0), (64, 10.837, 43.348), (100, 12.0, 48.0), (1000, 18.0, 72.0)],
)
def test_suspicion_bounds(live: int, shortest: float, longest: float) -> None:
    assert suspicion_bounds(CONFIG, live) == pytest.approx((shortest, longest), abs=1e-2)


@pytest.mark.parametrize(("live", "shortest"), [(2, 6.0), (32, 9.031), (128, 12.643)])
def test_without_a_floor_the_multiplier_rules(live: int, shortest: float) -> None:
    assert suspicion_bounds(replace(CONFIG, suspicion_floor=0.0), live)[0] == pytest.approx(shortest, abs=1e-3)


@pytest.mark.parametrize(("live", "wanted"), [(1, 0), (2, 0), (5, 0), (6, 4), (1000, 4)])
def test_confirmations_wanted(live: int, wanted: int) -> None:
    assert confirmations_wanted(CONFIG, live) == wanted


@pytest.mark.parametrize(
    ("wanted", "confirmed", "seconds"),
    [(0, 0, 2.0), (3, 0, 30.0), (3, 1, 16.0), (3, 2, 7.810), (3, 3, 2.0), (3, 4, 2.0)],  # memberlist's own table
)
def test_suspicion_timeout(wanted: int, confirmed: int, seconds: float) -> None:
    assert suspicion_timeout(2.0, 30.0, wanted, confirmed) == pytest.approx(seconds, abs=1e-2)


def test_each_accuser_counts_once() -> None:
    case = Suspicion(suspicion_bounds(CONFIG, 64), 4, "a", 100.0)
    assert case.deadline == pytest.approx(143.348, abs=1e-2)
    assert [case.confirm(name) for name in "aabcdef"] == [False, False, True, True, True, True, False]
    assert case.deadline == pytest.approx(110.837, abs=1e-2)


@pytest.mark.parametrize(("live", "limit"), [(1, 4), (9, 4), (10, 8), (64, 8), (99, 8), (100, 12), (1000, 16)])
def test_retransmit_limit(live: int, limit: int) -> None:
    assert retransmit_limit(CONFIG, live) == limit


@pytest.mark.parametrize(("live", "seconds"), [(1, 30), (32, 30), (33, 60), (64, 60), (65, 90), (128, 90), (1000, 180)])
def test_sync_period(live: int, seconds: float) -> None:
    assert sync_period(CONFIG, live) == seconds


def test_local_health_stays_between_0_and_7() -> None:
    health = LocalHealth(CONFIG)
    scores = []
    for points in (-1, 3, 3, 3, -1, -9):
        health.add(points)
        scores.append(health.score)
    assert scores == [0, 3, 6, 7, 6, 0]


def test_the_unwell_accuse_one_per_interval() -> None:
    health = LocalHealth(CONFIG)
    assert all(health.may_accuse(0.1 * step) for step in range(5))
    health.add(4)
    assert [health.may_accuse(10 + 0.25 * step) for step in range(6)] == [True, False, False, False, True, False]


def test_round_trips_keep_a_hundred() -> None:
    trips = RoundTrips()
    assert trips.p99 == 0.0
    trips.add(9.0)
    assert trips.p99 == 9.0
    for number in range(100):
        trips.add(number / 100)
    assert trips.p99 == 0.98


@pytest.mark.parametrize(
    ("persisted", "wall", "first"), [(-1, 1000, 1000), (999, 1000, 1000), (1000, 1000, 1001), (5000, 1000, 5001)]
)
def test_boot_incarnation(persisted: int, wall: int, first: int) -> None:
    assert boot_incarnation(persisted, wall) == first


@pytest.mark.parametrize("config", [LAN.membership, WAN.membership, TEST.membership], ids=["lan", "wan", "test"])
def test_profiles_keep_the_proportions(config: MembershipConfig) -> None:
    assert config.probe_interval >= 2 * config.probe_timeout
    assert config.tombstone >= 10 * config.sync_interval
    assert config.suspicion_floor > 6 * config.probe_interval


# --- dissemination -----------------------------------------------------------------------------------------------


def accusation(node: str, incarnation: int = 1) -> Accusation:
    return Accusation(node, incarnation, "accuser", dead=False)


def test_each_item_rides_up_to_the_limit() -> None:
    queue = Dissemination(CONFIG)
    queue.push("a", accusation("a"))
    rides = 0
    while queue.take(live=8):
        rides += 1
    assert (rides, len(queue)) == (4, 0)


def test_the_freshest_goes_first_and_the_newer_replaces_the_older() -> None:
    queue = Dissemination(replace(CONFIG, piggyback=1))
    queue.push("a", accusation("a"))
    queue.take(live=8)
    queue.push("b", accusation("b"))
    queue.push("a", accusation("a", 2))
    queue.push("b", accusation("b", 3))
    assert [queue.take(live=8) for _ in range(3)] == [[accusation("a", 2)], [accusation("b", 3)], [accusation("a", 2)]]


def test_second_hand_news_rides_once_and_last() -> None:
    queue = Dissemination(replace(CONFIG, piggyback=1))
    queue.push("old", accusation("old"), once=True)
    queue.push("new", accusation("new"))
    rides = [queue.take(live=8) for _ in range(6)]
    assert rides == [[accusation("new")]] * 4 + [[accusation("old")], []]


def test_a_message_takes_no_more_than_its_share() -> None:
    queue = Dissemination(CONFIG)
    for number in range(100):
        queue.push(str(number), accusation(str(number)))
    first, second = queue.take(live=8), queue.take(live=8)
    assert len(first) == len(second) == 16
    assert not set(first) & set(second)


# --- probe order -------------------------------------------------------------------------------------------------


def test_each_is_probed_once_per_cycle() -> None:
    order = ProbeOrder(random.Random(1))
    for number in range(10):
        order.add(str(number))
    order.next(lambda node: True)
    while order._position < 10:
        order.next(lambda node: True)
    cycles = [[order.next(lambda node: True) for _ in range(10)] for _ in range(3)]
    assert all(sorted(cycle) == sorted(map(str, range(10))) for cycle in cycles)
    assert cycles[0] != cycles[1]


def test_who_comes_or_goes_in_mid_cycle_makes_nobody_else_skip_a_turn() -> None:
    for seed in range(50):
        order = ProbeOrder(random.Random(seed))
        for number in range(10):
            order.add(str(number))
        seen = [order.next(lambda node: True) for _ in range(4)]
        order.add("new")
        gone = seen[0] if seed % 2 else next(node for node in order if node not in seen and node != "new")
        order.discard(gone)
        rest = []
        while order._position < len(order):
            rest.append(order.next(lambda node: True))
        assert {*seen, *rest, gone} >= set(map(str, range(10)))
        assert len(rest) == len(set(rest))
        assert not set(rest) & set(seen)


def test_the_unsuitable_are_passed_over() -> None:
    order = ProbeOrder(random.Random(3))
    for node in "abc":
        order.add(node)
    assert {order.next(lambda node: node != "b") for _ in range(6)} == {"a", "c"}
    assert order.next(lambda node: False) is None
    assert sorted(order.sample(5, lambda node: node != "b")) == ["a", "c"]


def test_who_is_hastened_comes_next_once_unless_it_went() -> None:
    order = ProbeOrder(random.Random(4))
    for number in range(20):
        order.add(str(number))
    for node in ("7", "3", "5"):
        order.hasten(node)
    order.discard("3")
    assert [order.next(lambda node: node != "5") for _ in range(2)][:1] == ["7"]
    assert [order.next(lambda node: True) for _ in range(19)].count("7") <= 1


# --- timers ------------------------------------------------------------------------------------------------------


def test_timers_fire_in_order_once_and_where_they_were_moved() -> None:
    timers, fired = Timers(), []
    for key, when in (("a", 3.0), ("b", 1.0), ("c", 2.0), ("a", 0.5), ("d", 1.5)):
        timers.set(key, when, lambda now, key=key: fired.append((key, now)))
    timers.cancel("d")
    assert (timers.next, timers.when("c"), timers.when("d")) == (0.5, 2.0, math.inf)
    while action := timers.pop(1.0):
        action(1.0)
    assert fired == [("a", 1.0), ("b", 1.0)]
    timers.shift(5.0)
    assert (timers.next, "c" in timers, "a" in timers) == (7.0, True, False)
    assert timers.pop(6.9) is None
    timers.cancel("c")
    assert timers.next == math.inf
