"""Links: credit, measured round trip and bandwidth, pauses, as literal tables."""

from __future__ import annotations

import math

import pytest

from p2p.agent.links import FEW, LATELY, STALE, WINDOW, Link
from p2p.config import ExchangeConfig

CONFIG = ExchangeConfig(block_bytes=100, credit_start=1000, credit_max=5000, floor=0.3)


def link(*deliveries: tuple[int, float]) -> Link:
    """A link that has delivered (bytes, seconds) one after another."""
    found, now = Link(CONFIG), 0.0
    for exchange, (nbytes, seconds) in enumerate(deliveries):
        found.leave(exchange, nbytes, now)
        now += seconds
        assert found.receipt(exchange, now) is not None
    return found


def test_before_the_first_receipt() -> None:
    fresh = link()
    assert (fresh.round_trip, fresh.bandwidth, fresh.credit, fresh.idle, fresh.overdue) == (0.0, 0.0, 1000, True, math.inf)
    assert fresh.room(1000) and not fresh.room(1001)


@pytest.mark.parametrize(
    ("deliveries", "round_trip", "bandwidth", "credit"),
    [
        ([(200, 0.5)], 0.5, 400.0, 500),  # 2 x 400 x 0.5 + 100
        ([(200, 0.5), (600, 1.0)], 0.5, 600.0, 750),  # the least round trip, the best rate; a message is a quarter of a second
        ([(1, 0.001)], 0.001, 1000.0, 252),
        ([(10_000, 0.1)], 0.1, 100_000.0, 5000),  # at most
    ],
)
def test_what_is_measured(deliveries: list[tuple[int, float]], round_trip: float, bandwidth: float, credit: int) -> None:
    measured = link(*deliveries)
    assert measured.round_trip == pytest.approx(round_trip)
    assert measured.bandwidth == pytest.approx(bandwidth)
    assert measured.credit == credit


def test_parcels_under_way_together_share_the_bandwidth() -> None:
    """Ten parcels of 100 bytes leave at once over 1000 bytes a second: the last receipt shows the whole rate."""
    shared = link()
    for i in range(10):
        shared.leave(i, 100, 0.0)
    for i in range(10):
        shared.receipt(i, 0.1 * (i + 1))
    assert shared.bandwidth == pytest.approx(1000.0)
    assert shared.round_trip == pytest.approx(0.1)


def test_what_queued_behind_others_is_no_round_trip() -> None:
    """Credit doesn't grow by its own making: ten bursts, each twice as long, and the round trip stays that of a message."""
    fresh, now = link(), 0.0
    for burst in range(10):
        for i in range(2**burst):
            fresh.leave(2**burst + i, 100, now)
        for i in range(2**burst):
            now += 0.1
            fresh.receipt(2**burst + i, now)
    assert fresh.round_trip == pytest.approx(0.1)
    assert fresh.credit == 2 * 100 + 250


def test_a_link_that_is_never_idle_runs_dry_after_a_while_and_is_measured_again() -> None:
    busy = link((100, 0.1))
    busy.leave(1, 100, 0.1)
    for i in range(2, 60):
        busy.leave(i, 100, 0.1 * i - 0.05)
        busy.receipt(i - 1, 0.1 * i)
        assert busy.stale == (0.1 * i > 0.2 + STALE), "the parcel that left alone came at 0.2"
    assert not busy.room(1)
    busy.receipt(59, 6.0)
    assert busy.room(200), "dry"
    busy.leave(60, 100, 6.0)
    assert not busy.room(1)
    busy.receipt(60, 6.3)
    assert not busy.stale
    assert list(busy.round_trips) == pytest.approx([0.1, 0.1, 0.3])


def test_a_link_that_becomes_ten_times_slower_is_known_for_it_within_its_window() -> None:
    changed = link(*[(1000, 0.1)] * WINDOW)
    assert (changed.bandwidth, changed.round_trip) == (pytest.approx(10_000.0), pytest.approx(0.1))
    now = 100.0
    for i in range(WINDOW):
        changed.leave(1000 + i, 1000, now)
        now += 1.0
        changed.receipt(1000 + i, now)
    assert (changed.bandwidth, changed.round_trip) == (pytest.approx(1000.0), pytest.approx(1.0))


def test_a_link_that_becomes_faster_shows_at_once() -> None:
    assert link(*[(100, 1.0)] * WINDOW, (100, 0.1)).bandwidth == pytest.approx(1000.0)


@pytest.mark.parametrize("deliveries", [[], [(1, 10.0)], [(1, 0.0)], [(100, 1e-9)]])
def test_an_idle_link_takes_a_block(deliveries: list[tuple[int, float]]) -> None:
    assert link(*deliveries).room(100)


def test_credit_is_what_is_not_under_way() -> None:
    busy = link()
    busy.leave(1, 700, 0.0)
    assert busy.room(300) and not busy.room(301) and not busy.idle
    busy.leave(2, 300, 0.0)
    assert not busy.room(1)
    busy.receipt(1, 0.1)
    assert busy.under_way == 300
    busy.unsend(2)
    assert (busy.under_way, busy.idle, len(busy.rates)) == (0, True, 1)


def test_a_connection_without_room_is_tried_later_or_after_a_receipt() -> None:
    full = link()
    full.leave(1, 100, 0.0)
    full.full_until = 1.0
    assert not full.room(1)
    full.retry(0.99)
    assert not full.room(1)
    full.retry(1.0)
    assert full.room(1)
    full.full_until = 5.0
    full.receipt(1, 1.1)
    assert full.room(1) and full.idle


def test_receipts_of_what_is_not_under_way_count_for_nothing() -> None:
    known = link((100, 1.0))
    assert known.receipt(0, 2.0) is None
    assert known.receipt(99, 2.0) is None
    assert (known.delivered, known.under_way, len(known.rates)) == (100, 0, 1)


@pytest.mark.parametrize(
    ("deliveries", "under_way", "overdue"),
    [
        ([], 100, 0.3),  # nothing known: the floor
        ([(100, 0.01)], 100, 0.3),  # twice 0.02 is below the floor
        ([(100, 1.0)], 100, 4.0),  # twice (round trip 1 + 100 bytes at 100 a second)
        ([(100, 1.0)], 1000, 22.0),  # much under way takes long
        ([(1000, 1.0)], 100, 2.2),
    ],
)
def test_a_partner_is_paused_after_twice_what_its_link_predicts(
    deliveries: list[tuple[int, float]], under_way: int, overdue: float
) -> None:
    waiting = link(*deliveries)
    waiting.leave(100, under_way, 50.0)
    assert waiting.overdue == pytest.approx(50.0 + overdue)
    assert not waiting.paused(50.0 + overdue - 1e-6)
    assert waiting.paused(waiting.overdue), "whoever wakes then finds it so"
    waiting.receipt(100, 60.0)
    assert not waiting.paused(1000.0)


def test_queueing_is_what_a_message_takes_beyond_the_round_trip() -> None:
    alone = link((100, 0.5), (100, 0.5))
    assert alone.queueing == 0.0
    for i in range(10, 14):
        alone.leave(i, 100, 10.0)
    for i in range(10, 14):
        alone.receipt(i, 10.5 + (i - 10))
    assert alone.queueing == pytest.approx(0.5), "the median of 0, 0, 0, 1, 2, 3"
    assert link().queueing == 0.0


def test_a_link_that_became_thin_does_not_live_on_what_was() -> None:
    found, now = link(*[(1000, 0.01)] * WINDOW), 0.01 * WINDOW
    for exchange in range(100, 100 + FEW):
        assert found.bandwidth == pytest.approx(100_000.0), "a single one may be late by chance"
        found.leave(exchange, 1000, now)
        now += 2 * LATELY
        found.receipt(exchange, now)
    assert found.bandwidth == pytest.approx(500.0)
    assert len(found.rates) == len(found.rated) == FEW
