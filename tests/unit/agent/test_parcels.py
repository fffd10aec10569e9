"""The machine of push-sum, event by event."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p.agent.parcels import AHEAD, MEMORY, WINDOW, Parcel, Parcels, Seen
from p2p.agent.rounds import Plan
from p2p.config import DeadlineConfig, ExchangeConfig

SIZES = (1000, 2000)


def machine(strict: bool = True, **deadline: float) -> Parcels:
    return Parcels(SIZES, ExchangeConfig(), DeadlineConfig(**deadline), 100, strict)  # type: ignore[arg-type]


def plan(round: int, outs: Iterable[str] = ("b",), ins: Iterable[str] = ("c",)) -> Plan:
    outs = tuple(outs)
    share = 1 / (1 + len(outs))
    return Plan(round, share, tuple((p, share) for p in outs), tuple((p, 0.5) for p in ins))


def begun(m: Parcels, round: int = 0, now: float = 0.0, **who: Iterable[str]) -> list[Parcel]:
    m.begin(plan(round, **who), now)
    return list(m.tick(now))


def test_a_round_gives_each_partner_its_share_of_each_bundle() -> None:
    sent = begun(machine(), outs=("b", "d", "e"))
    assert [(p.bundle, p.partner) for p in sent] == [(b, p) for b in (0, 1) for p in ("b", "d", "e")]
    assert [p.share for p in sent] == pytest.approx([1 / 4, 1 / 3, 1 / 2] * 2)  # of what is left
    assert [p.exchange for p in sent] == list(range(100, 106))


def test_what_has_no_receipt_goes_again_under_its_id_until_there_is_one() -> None:
    m = machine()
    ids = [p.exchange for p in begun(m)]
    assert not list(m.tick(0.2))
    again = list(m.tick(0.3))
    assert [(p.exchange, p.again) for p in again] == [(i, True) for i in ids]
    assert not list(m.tick(0.35))
    assert m.receipt("b", ids, 0.4) == ids
    assert not m.open
    assert not list(m.tick(9.0))


def test_a_receipt_from_another_counts_for_nothing() -> None:
    m = machine()
    ids = [p.exchange for p in begun(m)]
    assert m.receipt("c", ids, 0.1) == []
    assert len(m.open) == 2


def test_each_id_is_taken_once_and_always_receipted() -> None:
    m = machine()
    assert [m.arrived("c", 7, 0), m.arrived("c", 7, 0), m.arrived("d", 7, 0)] == [True, False, True]
    assert m.receipts() == {"c": [7, 7], "d": [7]}
    assert m.receipts() == {}


@given(st.lists(st.integers(0, MEMORY // 2), max_size=200))
def test_whatever_comes_again_in_any_order_is_new_once(exchanges: list[int]) -> None:
    seen, taken = Seen(), [e for e in exchanges]
    assert [seen.first(e) for e in taken] == [e not in taken[:i] for i, e in enumerate(taken)]


def test_memory_is_bounded_and_what_it_has_lost_is_never_taken() -> None:
    seen = Seen()
    for exchange in range(5 * MEMORY):
        assert seen.first(exchange)
    assert len(seen.ids) <= 2 * MEMORY
    assert not seen.first(3)


def test_a_strict_round_holds_back_what_is_early() -> None:
    m = machine()
    m.begin(plan(3), 0.0)
    assert not m.admits(3, 0)  # the own shares of it are not gone
    list(m.tick(0.0))
    assert [m.admits(r, 0) for r in (2, 3, 4, 3 + AHEAD, 4 + AHEAD)] == [True, True, False, False, True]
    assert machine(strict=False).admits(9, 0)


def test_a_round_is_over_when_all_has_come() -> None:
    m = machine()
    begun(m)
    m.arrived("c", 0, 0)
    assert not m.complete(0.1)
    m.arrived("c", 1, 0)
    assert m.complete(0.1)


def test_who_is_past_the_round_is_not_waited_for() -> None:
    m = machine()
    begun(m)
    m.arrived("c", 0, 1)
    assert m.complete(0.1)


def test_the_deadline_ends_the_round_and_three_in_a_row_the_waiting() -> None:
    m = machine(first=5.0)
    for round in range(3):
        begun(m, round, now=10.0 * round)
        assert not m.complete(10.0 * round + 4.9)
        assert m.complete(10.0 * round + 5.0)
        assert m.skipped == ("c",)
    begun(m, 3, now=30.0)
    assert m.complete(30.0)
    assert m.slow("c")
    m.arrived("c", 0, 3)
    m.arrived("c", 1, 3)
    assert not m.slow("c")


def test_for_the_gone_all_is_taken_back() -> None:
    m = machine()
    ids = [p.exchange for p in begun(m, outs=("b", "d"))]
    back = m.partners({"d": None})
    assert set(back) | set(m.open) == set(ids)
    assert {p.partner for p in m.open.values()} == {"d"}
    assert m.tally.returned == 2
    assert not list(m.tick(0.1))


def test_without_credit_the_share_is_kept() -> None:
    m = machine(strict=False)
    for round in range(WINDOW):
        begun(m, round)
    assert len(m.open) == WINDOW
    assert m.tally.kept > 0
    assert sum(parcel.share for parcel in m.open.values()) == pytest.approx(WINDOW / 2)


def test_a_leaver_gives_all_that_is_left() -> None:
    m = machine()
    begun(m)
    assert [(p.partner, p.share) for p in m.hand_over("e", 1.0)] == [("e", 1.0), ("e", 1.0)]


def test_who_lags_joins_the_others_round() -> None:
    m = machine()
    begun(m, 4)
    m.arrived("c", 0, 5 + AHEAD)
    assert m.next_round() == 5
    m.arrived("c", 1, 6 + AHEAD)
    assert m.next_round() == 6 + AHEAD


def test_a_connection_without_room_is_tried_again_soon() -> None:
    m = machine()
    ids = [p.exchange for p in begun(m)]
    m.full("b", 0.0)
    assert m.wake == pytest.approx(0.01)
    assert [p.exchange for p in m.tick(0.3)] == ids
