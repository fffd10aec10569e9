"""The swap machine, rule by rule, and under any order of events."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from p2p.agent.bundles import BLOCKS
from p2p.agent.exchange import RECEIPTS, Row, Swaps
from p2p.agent.swap import Opened, Repeat
from p2p.config import ExchangeConfig

CONFIG = ExchangeConfig(block_bytes=100, message_bytes=400, credit_start=10_000, credit_max=100_000)

Rows = Callable[[int], Row]


def always(*row: tuple[str, float]) -> Rows:
    return lambda round: row


JUST_P = always(("p", 1.0))


def in_turn(*partners: str) -> Rows:
    """One partner per round, as in one-peer topologies."""
    return lambda round: ((partners[round % len(partners)], 1.0),)


def machine(
    blocks: int | Sequence[tuple[int, int]] = 1,
    row: Rows = JUST_P,
    pace: float = 1.0,
    first_id: int = 0,
    **knobs: float,
) -> Swaps:
    sizes = [(0, 100)] * blocks if isinstance(blocks, int) else blocks
    swaps = Swaps(sizes, replace(CONFIG, **knobs), row, first_id)  # type: ignore[arg-type]
    swaps.pace = pace
    return swaps


def opened(swaps: Swaps, now: float) -> list[Opened]:
    found = [i for i in swaps.tick(now) if isinstance(i, Opened)]
    swaps.validate_state()
    return found


def answer(swaps: Swaps, what: Opened, now: float, mixed: bool = True) -> None:
    assert swaps.asking(what.partner, what.exchange) == what
    swaps.answered(what.exchange, now, mixed)
    swaps.validate_state()


def practised(swap_time: float, blocks: int = 1, row: Rows = JUST_P, pace: float = 1.0) -> tuple[Swaps, float]:
    """A machine that has seen some swaps take so long, all blocks free; and the time at which they are due again."""
    swaps = machine(blocks, row, pace)
    now = 0.0
    for _ in range(3):
        for swap in opened(swaps, now):
            answer(swaps, swap, now + swap_time)
        now += max(2 * pace, 2 * swap_time)
    return swaps, now


# --- when a block is due, and with what it travels --------------------------------------------------------------


def test_nothing_is_due_before_anybody_has_a_pace() -> None:
    swaps = machine(pace=0.0)
    assert (swaps.tick(5.0), swaps.wake) == ([], math.inf)


def test_a_block_is_due_one_pace_after_its_last_own_swap() -> None:
    swaps = machine(pace=2.0)
    [first] = opened(swaps, 10.0)
    answer(swaps, first, 10.5)
    assert (opened(swaps, 11.9), swaps.wake) == ([], 12.0)
    assert len(opened(swaps, 12.0)) == 1


def test_a_period_stretches_the_interval() -> None:
    swaps = machine(pace=2.0)
    swaps.period = 3
    [first] = opened(swaps, 0.0)
    answer(swaps, first, 0.5)
    assert (opened(swaps, 5.9), swaps.wake) == ([], 6.0)


def layered() -> Swaps:
    """Four blocks, asked for one in each step of a period of 4 s, over a link that has shown its rate."""
    swaps = machine(4, message_bytes=100)
    swaps.agenda.spread, swaps.period = True, 4
    now = 0.0
    while now < 8.0:
        for swap in opened(swaps, now):
            answer(swaps, swap, now + 0.1)
        now += 0.25
    return swaps


def test_blocks_have_their_turns_at_meets_once_a_period_each() -> None:
    swaps, asked = layered(), list[tuple[float, int]]()
    for step in range(9, 29):
        swaps.stepped(step, float(step))
        for swap in opened(swaps, float(step)):
            asked += [(step, i) for i in range(swap.first, swap.first + swap.count)]
            answer(swaps, swap, step + 0.1)
    later = [(step, i) for step, i in asked if step >= 13]
    assert len(later) == 16 and {step for step, _ in later} == set(range(13, 29)), "one in each step"
    assert [i for _, i in later[:4]] == [i for _, i in later[4:8]] == [i for _, i in later[12:]]
    assert sorted(i for _, i in later[:4]) == [0, 1, 2, 3]


def test_a_trainer_that_stalls_stops_no_blocks_that_have_turns() -> None:
    swaps, asked = layered(), list[int]()
    swaps.stepped(9, 9.0)
    for quarter in range(36, 56):
        for swap in opened(swaps, quarter / 4):
            asked += range(swap.first, swap.first + swap.count)
            answer(swaps, swap, quarter / 4 + 0.1)
    assert set(asked) == {0, 1, 2, 3}


def test_eager_blocks_are_due_as_soon_as_the_last_swap_could_be_back() -> None:
    swaps, now = practised(0.25)
    swaps.eager = True
    [swap] = opened(swaps, now)
    answer(swaps, swap, now + 0.1)
    assert len(opened(swaps, now + 0.25)) == 1


@pytest.mark.parametrize(
    ("blocks", "messages"),
    [
        ([(0, 100)] * 4, [(0, 4)]),
        ([(0, 100)] * 9, [(0, 4), (4, 4), (8, 1)]),  # 400 bytes a message
        ([(0, 100), (0, 100), (1, 100), (1, 100)], [(0, 2), (2, 2)]),  # a run ends
        ([(0, 1)] * 70, [(0, BLOCKS), (BLOCKS, 6)]),  # the answer's bits
    ],
)
def test_consecutive_due_blocks_travel_together(blocks: list[tuple[int, int]], messages: list[tuple[int, int]]) -> None:
    assert [(o.first, o.count) for o in opened(machine(blocks), 0.0)] == messages


def test_blocks_go_as_far_as_credit_does_and_the_rest_when_it_returns() -> None:
    swaps = machine(6, credit_start=300)
    [first] = opened(swaps, 0.0)
    assert (first.first, first.count) == (0, 3)
    answer(swaps, first, 0.1)
    assert [(o.first, o.count) for o in opened(swaps, 0.1)] == [(3, 3)]


def test_on_a_thin_link_the_longest_waiting_block_goes_first() -> None:
    swaps = machine([(i, 100) for i in range(5)], credit_start=100, block_bytes=0, credit_max=100)
    order, now = [], 0.0
    while len(order) < 15:
        for swap in opened(swaps, now):
            order.append(swap.first)
            answer(swaps, swap, now + 0.3)
        now += 0.31
    assert order == [0, 1, 2, 3, 4] * 3


# --- one own swap at a time --------------------------------------------------------------------------------------


def test_one_own_swap_is_open_until_it_is_answered_or_overdue() -> None:
    swaps, now = practised(0.8)
    opened(swaps, now)
    assert opened(swaps, now + 1.0) == []
    assert opened(swaps, now + 1.55) == []
    [again] = opened(swaps, now + 1.6)  # 2 x the median swap time
    assert (swaps.tally.overdue, again.at) == (1, now + 1.6)


@pytest.mark.parametrize(("swap_time", "pace", "after"), [(0.1, 1.0, 1.0), (0.7, 1.0, 1.4), (0.1, 5.0, 5.0)])
def test_overdue_after_a_step_or_twice_the_median_swap(swap_time: float, pace: float, after: float) -> None:
    swaps, now = practised(swap_time, pace=pace)
    opened(swaps, now)
    swaps.tick(now + after - 1e-6)
    assert swaps.blocks[0].held == 1
    swaps.tick(now + after + 1e-6)
    assert swaps.tally.overdue == 1


def test_who_wakes_for_an_overdue_swap_releases_it() -> None:
    """However the sum is rounded: a wake that does nothing would come back at once, for ever."""
    for i in range(200):
        swaps, now = practised(0.6 + i / 1000, pace=0.7)
        opened(swaps, now + i / 7)
        for _ in range(10):
            swaps.tick(swaps.wake)
            if swaps.tally.overdue:
                break
        assert swaps.tally.overdue, i


def test_the_late_answer_of_an_overdue_swap_is_still_applied() -> None:
    swaps, now = practised(0.8)
    [late] = opened(swaps, now)
    [again] = opened(swaps, now + 1.6)
    answer(swaps, late, now + 1.7)
    assert swaps.blocks[0].held == 1, "the younger swap goes on"
    answer(swaps, again, now + 1.8)
    assert (swaps.blocks[0].held, swaps.drained()) == (0, True)


@pytest.mark.parametrize(
    ("swap_time", "limit"), [(0.5, 1), (1.0, 1), (1.04, 1), (1.06, 2), (2.0, 2), (2.5, 3), (3.9, 4), (20.0, 4)]
)
def test_as_many_swaps_are_open_as_steps_pass_during_one(swap_time: float, limit: int) -> None:
    swaps, now = practised(swap_time, row=always(("a", 0.5), ("b", 0.5)))
    weights = [o.weight for step in range(8) for o in opened(swaps, now + step)][:limit]
    assert swaps.limit == limit
    assert weights == [1 / (k + 1) for k in range(1, limit + 1)]
    assert max(b.held for b in swaps.blocks) <= limit


# --- others' swaps -----------------------------------------------------------------------------------------------


def test_while_an_own_swap_is_open_one_other_is_answered() -> None:
    swaps = machine(2)
    [own] = opened(swaps, 0.0)
    assert swaps.asked("a", 1, 0, 2, 0.5).accepted == 0b11
    assert swaps.asked("b", 1, 0, 2, 0.5).accepted == 0
    answer(swaps, own, 0.2)
    assert swaps.asked("b", 2, 0, 1, 0.5).accepted == 0b1


def test_each_block_decides_for_itself() -> None:
    swaps = machine(3)
    opened(swaps, 0.0)
    assert swaps.asked("a", 1, 1, 1, 0.5).accepted == 0b1
    assert swaps.asked("b", 1, 0, 3, 0.5).accepted == 0b101


def test_without_an_own_swap_all_are_answered() -> None:
    swaps = machine(pace=0.0)
    assert [swaps.asked(p, 1, 0, 1, 0.5).accepted for p in "abcde"] == [1] * 5


def test_an_overdue_swap_holds_nothing() -> None:
    swaps, now = practised(0.1)
    opened(swaps, now)
    assert [swaps.asked(p, 1, 0, 1, 0.5).accepted for p in "ab"] == [1, 0]
    swaps.closing = False
    swaps._release_overdue(now + 1.1)
    assert [swaps.asked(p, 2, 0, 1, 0.5).accepted for p in "ab"] == [1, 1]


@pytest.mark.parametrize(("theirs", "agreed"), [(0.5, 0.5), (0.125, 0.125), (0.25, 0.25)])
def test_the_weight_is_the_smaller_of_both_limits(theirs: float, agreed: float) -> None:
    assert machine().asked("a", 1, 0, 1, theirs).weight == agreed


def test_a_slow_network_alone_does_not_lower_the_weight() -> None:
    """Where links are thin, swaps are long and rare: few of a block are open at once."""
    swaps, now = practised(2.5)
    assert swaps.asked("a", 1, 0, 1, 0.5).weight == 0.5
    assert opened(swaps, now)[0].weight == 0.5


def test_own_swaps_that_are_open_lower_the_responders_limit_too() -> None:
    swaps, now = practised(2.5)
    for step in range(3):
        opened(swaps, now + step)
    assert swaps.asked("a", 1, 0, 1, 0.5).weight == 1 / 5


def test_two_that_ask_each_other_at_once_meet_instead_of_changing_places() -> None:
    one, other = machine(), machine()
    mine, theirs = opened(one, 0.0)[0], opened(other, 0.0)[0]
    crossed = [at.asked("a", 1, 0, 1, swap.weight).weight for at, swap in ((other, mine), (one, theirs))]
    assert crossed == [1 / 3, 1 / 3]


@pytest.mark.parametrize(("done", "weight"), [(0, 0.125), (1, 0.1875), (3, 0.3125), (6, 0.5), (9, 0.5)])
def test_a_joiners_limit_rises(done: int, weight: float) -> None:
    swaps = machine()
    swaps.ramp = 6
    for i in range(done):
        [swap] = opened(swaps, 2.0 * i)
        answer(swaps, swap, 2.0 * i + 0.1)
    assert swaps.asked("a", 1, 0, 1, 0.5).weight == weight
    assert opened(swaps, 2.0 * done)[0].weight == weight


def test_rounds_without_a_partner_do_not_raise_a_joiners_limit() -> None:
    swaps = machine(row=always())
    swaps.ramp = 6
    assert opened(swaps, 0.0) == opened(swaps, 1.0) == []
    assert swaps.asked("a", 1, 0, 1, 0.5).weight == 0.125


def test_a_block_takes_part_once_its_state_is_there() -> None:
    swaps = machine(20)
    swaps.await_state(ramp=4)
    assert (opened(swaps, 1.0), swaps.asked("a", 1, 0, 3, 0.5).accepted) == ([], 0)
    swaps.arrived([1, *range(10, 17)])
    assert swaps.wake <= 1.0
    assert [(o.first, o.count, o.weight) for o in opened(swaps, 1.0)] == [(1, 1, 0.125)], "an eighth of what came"
    assert swaps.asked("a", 2, 0, 3, 0.5).accepted == 0b010
    swaps.arrived()
    assert sum(o.count for o in opened(swaps, 1.1)) == 19
    swaps.validate_state()


def test_a_block_that_has_just_come_is_swapped_when_it_is_due() -> None:
    """Others may ask for it before."""
    swaps = machine(2)
    swaps.await_state(ramp=4)
    swaps.arrived([0], due=1.5)
    assert (opened(swaps, 1.4), swaps.wake) == ([], 1.5)
    assert swaps.asked("a", 1, 0, 2, 0.5).accepted == 0b01
    swaps.arrived([1], due=1.6)
    assert [o.first for o in opened(swaps, 1.5)] == [0]
    assert [o.first for o in opened(swaps, 1.6)] == [1]
    swaps.validate_state()


def test_a_joiner_is_answered_again_whatever_becomes_of_the_view() -> None:
    swaps = machine()
    assert swaps.asked("joiner", 1, 0, 1, 0.5).accepted == 1
    swaps.keep("joiner", 1, 100, "kept")
    swaps.partners({"p": 0}, ["joiner"])
    assert swaps.asked("joiner", 1, 0, 0, 0.0).answer == "kept"
    swaps.partners({"p": 0})
    assert swaps.asked("joiner", 1, 0, 0, 0.0).answer is None


# --- ids ---------------------------------------------------------------------------------------------------------


def test_a_repeated_request_is_answered_again_and_never_mixed_again() -> None:
    swaps = machine()
    assert swaps.asked("a", 7, 0, 1, 0.5).accepted == 1
    swaps.keep("a", 7, 100, "the answer")
    for count in (0, 1):
        verdict = swaps.asked("a", 7, 0, count, 0.5)
        assert (verdict.accepted, verdict.answer) == (0, "the answer")
    assert swaps.settled("a", (7,)) == ["the answer"]
    for exchange in (7, 6, 0):
        verdict = swaps.asked("a", exchange, 0, 1, 0.5)
        assert (verdict.accepted, verdict.answer) == (0, None)
    assert swaps.asked("a", 8, 0, 1, 0.5).accepted == 1


def test_a_repetition_of_what_never_came_is_declined_and_its_blocks_are_not_mixed_later() -> None:
    swaps = machine()
    assert swaps.asked("a", 3, 0, 0, 0.0).accepted == 0
    assert swaps.asked("a", 3, 0, 1, 0.5).accepted == 0
    assert swaps.asked("b", 3, 0, 1, 0.5).accepted == 1, "ids are each partner's own"


def test_ids_of_a_later_incarnation_are_above_all_earlier_ones() -> None:
    responder = machine(pace=0.0)
    before, after = (machine(first_id=incarnation << 20) for incarnation in (5, 6))
    for swaps, expected in ((before, 1), (after, 1), (before, 0)):
        [swap] = opened(swaps, swaps.blocks[0].due)
        assert responder.asked("p", swap.exchange, 0, 1, 0.5).accepted == expected
        answer(swaps, swap, swap.at)


def test_settled_frees_only_the_senders_answers() -> None:
    swaps = machine()
    for partner in "ab":
        swaps.asked(partner, 1, 0, 1, 0.5)
        swaps.keep(partner, 1, 100, f"for {partner}")
    assert swaps.settled("a", (1, 1, 99, -1)) == ["for a"]
    assert swaps.settled("c", (1,)) == []
    assert swaps.asked("b", 1, 0, 0, 0.0).answer == "for b"


def test_kept_answers_are_bounded_by_bytes_and_by_number() -> None:
    swaps = machine(credit_max=100_000)
    for exchange in range(1000):
        swaps.asked("a", exchange, 0, 1, 0.5)
        swaps.keep("a", exchange, 0 if exchange < 900 else 40_000, exchange)
        swaps.validate_state()
        if exchange == 899:
            assert swaps.tally.forgotten == 900 - 98  # 1 KiB each, beside the credit a message
    assert swaps.tally.forgotten == 998
    assert swaps.asked("a", 999, 0, 0, 0.0).answer == 999
    assert swaps.asked("a", 0, 0, 0, 0.0).answer is None


def test_an_answer_larger_than_all_room_is_kept_alone() -> None:
    swaps = machine(credit_max=100)
    swaps.asked("a", 1, 0, 1, 0.5)
    assert swaps.keep("a", 1, 1000, "large") == []
    swaps.asked("a", 2, 0, 1, 0.5)
    assert swaps.keep("a", 2, 1000, "larger") == ["large"]


def test_nodes_that_are_gone_do_not_fill_the_memory() -> None:
    swaps = machine()
    for i in range(10_000):
        swaps.asked(f"node {i}", 1, 0, 1, 0.5)
        swaps.keep(f"node {i}", 1, 100, "answer")
        swaps.partners({f"node {i}": 0})
    assert len(swaps._answers._seen) <= 4097
    assert len(swaps._answers._shelves) == 1


# --- whom a block asks -------------------------------------------------------------------------------------------


def partners_of(swaps: Swaps, rounds: int) -> list[str]:
    found = []
    for i in range(rounds):
        for swap in opened(swaps, 2.0 * i):
            found.append(swap.partner)
            answer(swaps, swap, 2.0 * i + 0.1)
    return found


def test_a_ring_alternates() -> None:
    found = partners_of(machine(row=always(("a", 0.5), ("b", 0.5))), 20)
    assert Counter(found) == {"a": 10, "b": 10}
    assert all(x != y for x, y in pairwise(found[2:]))


def test_one_peer_takes_each_rounds_partner() -> None:
    assert partners_of(machine(row=in_turn(*"abc")), 9) == list("abcabcabc")


@pytest.mark.parametrize("weights", [(0.5, 0.25, 0.25), (0.9, 0.1), (1 / 3, 1 / 3, 1 / 3), (0.6, 0.3, 0.05, 0.05)])
def test_weight_is_frequency(weights: tuple[float, ...]) -> None:
    row = tuple(zip("abcd", weights, strict=False))
    found = Counter(partners_of(machine(row=always(*row)), 400))
    for partner, weight in row:
        assert found[partner] == pytest.approx(400 * weight, abs=2)


def test_a_partner_without_credit_is_passed_over_and_its_debt_served_first() -> None:
    swaps = machine(row=in_turn("a", "b"))
    swaps.link("a").full_until = 0.5
    swaps._full.add("a")
    [instead] = opened(swaps, 0.0)
    assert instead.partner == "b"
    answer(swaps, instead, 0.1)
    [owed] = opened(swaps, 1.0)
    assert owed.partner == "a"


def test_a_block_for_which_nobody_has_room_is_owed_one_swap_each_time_it_is_due() -> None:
    """A longer period thins what thin links carry, too."""
    swaps = machine(row=in_turn("a", "b", "c"))
    for partner in "abc":
        swaps.link(partner).full_until = math.inf
    for i in range(1, 6):
        assert opened(swaps, 2.0 * i) == []
        assert sum(swaps.blocks[0].debts.values()) == i
    assert swaps.blocks[0].debts == {"a": 2.0, "b": 2.0, "c": 1.0}


def test_debts_are_bounded() -> None:
    swaps = machine(row=in_turn("a", "b"))
    for i in range(50):
        swaps.link("a").full_until = math.inf
        [instead] = opened(swaps, 2.0 * i)
        answer(swaps, instead, 2.0 * i + 0.1)
        assert swaps.blocks[0].debts.get("a", 0.0) <= 2.0


def test_a_paused_partner_is_asked_nothing_new_until_it_answers() -> None:
    swaps = machine(row=always(("a", 0.5), ("b", 0.5)))
    [first] = opened(swaps, 0.0)
    other = {"a": "b", "b": "a"}[first.partner]
    for i in range(1, 5):  # silent since 0: paused after the floor, overdue after a step
        [swap] = opened(swaps, float(i))
        assert swap.partner == other
        answer(swaps, swap, i + 0.1)
    answer(swaps, first, 4.5)
    assert opened(swaps, 5.0)[0].partner == first.partner


def test_each_block_counts_its_own_rounds() -> None:
    """Nine blocks over a thin rotation and three partners: with one counter for all, each would always meet the same."""
    swaps = machine([(i, 100) for i in range(9)], row=in_turn(*"abc"), credit_start=100, block_bytes=0, credit_max=100)
    met: dict[int, Counter[str]] = {i: Counter() for i in range(9)}
    now = 0.0
    for _ in range(200):
        for swap in opened(swaps, now):
            met[swap.first][swap.partner] += 1
            answer(swaps, swap, now + 0.05)
        now += 0.1
    assert all(set(met[i]) == {"a", "b", "c"} for i in met)
    assert all(max(m.values()) <= 2 * min(m.values()) for m in met.values())


def test_who_was_alone_asks_as_soon_as_there_is_a_partner() -> None:
    rows: list[Row] = [()]
    swaps = machine(row=lambda round: rows[0])
    assert opened(swaps, 0.0) == opened(swaps, 1.0) == []
    rows[0] = (("p", 1.0),)
    swaps.partners({"p": 0})
    assert [o.partner for o in opened(swaps, 2.0)] == ["p"]


# --- what goes wrong ---------------------------------------------------------------------------------------------


def test_a_request_is_repeated_with_back_off() -> None:
    swaps = machine(pace=100.0)
    [swap] = opened(swaps, 0.0)
    times = []
    for _ in range(8):
        now = swaps.wake
        assert [i for i in swaps.tick(now) if isinstance(i, Repeat)] == [Repeat("p", swap.exchange)]
        times.append(round(now, 6))
    assert times == [0.3, 0.9, 2.1, 4.5, 7.5, 10.5, 13.5, 16.5]
    assert swaps.tally.repeated == 8


def test_what_could_not_be_sent_is_due_again_and_owed() -> None:
    swaps = machine(2, row=in_turn("a", "b"))
    [swap] = opened(swaps, 0.0)
    swaps.unsent(swap.exchange, 0.0)
    swaps.validate_state()
    assert (swap.partner, swaps.blocks[0].swaps, swaps.drained()) == ("a", 0, True)
    assert [o.partner for o in opened(swaps, 0.0)] == ["b"], "the link to a has no room for a while"
    assert opened(swaps, 0.02) == [], "one at a time"
    swaps.partners({"a": 0})
    assert [o.partner for o in opened(swaps, 1.0)] == ["a"]


def test_a_full_connection_is_tried_again_soon() -> None:
    swaps = machine()
    [swap] = opened(swaps, 1.0)
    swaps.unsent(swap.exchange, 1.0)
    assert opened(swaps, 1.0) == []
    assert swaps.wake == pytest.approx(1.01)
    assert len(opened(swaps, swaps.wake)) == 1


def test_what_could_not_be_staged_is_due_in_its_time_and_blames_no_link() -> None:
    swaps = machine()
    [swap] = opened(swaps, 0.0)
    swaps.withdrawn(swap.exchange)
    swaps.validate_state()
    assert (opened(swaps, 0.5), swaps.wake, swaps.link("p").idle) == ([], 1.0, True)


def test_the_swaps_of_who_is_gone_are_given_up_and_counted() -> None:
    swaps = machine(3, row=always(("a", 0.5), ("b", 0.5)))
    [swap] = opened(swaps, 0.0)
    swaps.partners({{"a": "b", "b": "a"}[swap.partner]: 0})
    swaps.validate_state()
    assert (swaps.tally.moved, swaps.drained(), [b.held for b in swaps.blocks]) == (3, True, [0, 0, 0])
    assert swaps.asking(swap.partner, swap.exchange) is None
    assert swap.partner not in swaps.links


def test_an_answer_from_another_than_the_partner_is_nobodys() -> None:
    swaps = machine()
    [swap] = opened(swaps, 0.0)
    assert swaps.asking("mallory", swap.exchange) is None
    assert swaps.asking("p", swap.exchange + 1) is None
    assert swaps.asking("p", swap.exchange) == swap


def test_who_closes_opens_nothing_mixes_nothing_and_drains() -> None:
    swaps = machine()
    [swap] = opened(swaps, 0.0)
    swaps.asked("a", 1, 0, 1, 0.5)
    swaps.keep("a", 1, 100, "kept")
    swaps.closing = True
    assert opened(swaps, 5.0) == []
    assert swaps.asked("b", 1, 0, 1, 0.5).accepted == 0
    assert swaps.asked("a", 1, 0, 0, 0.0).answer == "kept"
    assert not swaps.drained() and swaps.wake < math.inf, "the answer is asked for until it comes"
    answer(swaps, swap, 5.1)
    assert swaps.drained() and swaps.wake == math.inf


def test_receipts_are_told_once_and_never_too_many() -> None:
    swaps = machine([(i, 1) for i in range(RECEIPTS + 10)], credit_start=10**6)
    for swap in opened(swaps, 0.0):
        answer(swaps, swap, 0.1, mixed=swap.first != 5)
    assert swaps.unreceipted() == ["p"]
    assert len(swaps.receipts("p")) == RECEIPTS and 5 not in swaps.receipts("p")
    swaps.told("p")
    assert len(swaps.receipts("p")) == 9
    swaps.told("p")
    assert (swaps.receipts("p"), swaps.unreceipted()) == ((), [])


# --- any order of events -----------------------------------------------------------------------------------------

NODES = ("a", "b", "c")


class AnyOrder(RuleBasedStateMachine):
    """Events as they come; the machine never contradicts itself, never spins, never mixes a request twice."""

    @initialize(period=st.integers(1, 2), one_peer=st.booleans(), ramp=st.integers(0, 4))
    def begin(self, period: int, one_peer: bool, ramp: int) -> None:
        self.live = dict.fromkeys(NODES, 0)
        self.one_peer = one_peer
        self.swaps = Swaps([(i // 4, 100) for i in range(7)], replace(CONFIG, credit_start=500), self.row, 10)
        self.swaps.period, self.swaps.ramp = period, ramp
        self.now = 0.0
        self.open: list[Opened] = []
        self.newest = dict.fromkeys(NODES, -1)
        self.mixed: set[tuple[str, int]] = set()

    def row(self, round: int) -> Row:
        live = list(self.live)
        if self.one_peer and live:
            return ((live[round % len(live)], 1.0),)
        return tuple((p, 1 / len(live)) for p in live)

    @rule(pace=st.sampled_from([0.1, 1.0, 3.0]))
    def step(self, pace: float) -> None:
        self.swaps.pace = pace

    @rule(after=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0, 10.0]), fates=st.lists(st.integers(0, 9), min_size=8, max_size=8))
    def tick(self, after: float, fates: list[int]) -> None:
        self.now += after
        for _ in range(20):
            self.perform(fates)
            if self.swaps.wake > self.now:
                return
        raise AssertionError("the machine wants to be woken for ever, and does nothing")

    @rule(fates=st.lists(st.integers(0, 9), min_size=8, max_size=8))
    def sleep(self, fates: list[int]) -> None:
        """To the very moment at which the machine wants to be woken."""
        if self.swaps.wake < math.inf:
            self.tick(max(0.0, self.swaps.wake - self.now), fates)

    def perform(self, fates: list[int]) -> None:
        limit = self.swaps.limit
        for instruction, fate in zip(self.swaps.tick(self.now), fates * 20, strict=False):
            if isinstance(instruction, Repeat):
                assert instruction.exchange in {o.exchange for o in self.open}
            else:
                self.opened(instruction, fate, limit)

    def opened(self, swap: Opened, fate: int, limit: int) -> None:
        assert swap.partner in self.live
        assert 0 < swap.weight <= 0.5
        blocks = range(swap.first, swap.first + swap.count)
        assert len({i // 4 for i in blocks}) == 1, "of one run"
        assert all(self.swaps.blocks[i].held <= limit for i in blocks)
        assert swap.exchange >= 10 and swap.exchange not in {o.exchange for o in self.open}
        if fate == 0:
            self.swaps.unsent(swap.exchange, self.now)
        elif fate == 1:
            self.swaps.withdrawn(swap.exchange)
        else:
            self.open.append(swap)

    @rule(which=st.integers(0, 50), mixed=st.booleans(), after=st.sampled_from([0.0, 0.2, 4.0]))
    def answered(self, which: int, mixed: bool, after: float) -> None:
        if self.open:
            self.now += after
            swap = self.open.pop(which % len(self.open))
            assert self.swaps.asking(swap.partner, swap.exchange) == swap
            self.swaps.answered(swap.exchange, self.now, mixed)

    @rule(partner=st.sampled_from(NODES), jump=st.integers(-3, 3), first=st.integers(0, 6), count=st.integers(0, 4))
    def asked(self, partner: str, jump: int, first: int, count: int) -> None:
        exchange = self.newest[partner] + jump
        verdict = self.swaps.asked(partner, exchange, first, min(count, 7 - first), 0.5)
        if exchange > self.newest[partner]:
            self.newest[partner] = exchange
        elif verdict.accepted:
            raise AssertionError("an old id was mixed")
        if verdict.accepted:
            assert (partner, exchange) not in self.mixed
            assert 0 < verdict.weight <= 0.5 and verdict.accepted < 1 << count
            self.mixed.add((partner, exchange))
            self.swaps.keep(partner, exchange, 30_000, exchange)

    @rule(partner=st.sampled_from(NODES), back=st.lists(st.integers(-2, 5), max_size=4))
    def settled(self, partner: str, back: list[int]) -> None:
        self.swaps.settled(partner, tuple(self.newest[partner] - b for b in back))

    @rule(partner=st.sampled_from(NODES))
    def tell(self, partner: str) -> None:
        self.swaps.told(partner)
        assert self.swaps.receipts(partner) == ()

    @rule(live=st.sets(st.sampled_from(NODES)))
    def view(self, live: set[str]) -> None:
        self.live = dict.fromkeys(sorted(live), 0)
        self.open = [o for o in self.open if o.partner in live]
        self.swaps.partners(self.live)

    @rule(ramp=st.integers(1, 4))
    def await_state(self, ramp: int) -> None:
        self.swaps.await_state(ramp)

    @rule(blocks=st.none() | st.sets(st.integers(0, 6)))
    def arrived(self, blocks: set[int] | None) -> None:
        self.swaps.arrived(blocks)

    @rule(eager=st.booleans(), closing=st.booleans())
    def mode(self, eager: bool, closing: bool) -> None:
        self.swaps.eager, self.swaps.closing = eager, closing

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "swaps"):
            self.swaps.validate_state()
            assert self.swaps.drained() == (not self.open)
            assert all(set(b.debts) <= set(NODES) and sum(b.debts.values()) <= 8 for b in self.swaps.blocks)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
