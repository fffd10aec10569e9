"""The machine of synchronous rounds, rule by rule, and under any order of events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from p2p.agent.rounds import AHEAD, Arrived, Plan, Pushed, Question, Rounds
from p2p.config import DeadlineConfig, ExchangeConfig

EXCHANGE = ExchangeConfig(block_bytes=100, message_bytes=200, credit_start=1000, credit_max=10_000)
ADAPTIVE = DeadlineConfig(deviations=4.0, floor=0.3, change=2.0, patience=3)
OFF = replace(ADAPTIVE, enabled=False)
A, B, C = "a", "b", "c"


def plan(round: int, *partners: str, weight: float = 0.25) -> Plan:
    pairs = tuple((p, weight) for p in partners)
    return Plan(round, 1 - weight * len(partners), pairs, pairs)


def machine(deadline: DeadlineConfig = OFF, blocks: int = 2, first_id: int = 100, **knobs: int) -> Rounds:
    return Rounds([(0, 100)] * blocks, replace(EXCHANGE, **knobs), deadline, first_id)  # type: ignore[arg-type]


def push(
    rounds: Rounds,
    partner: str,
    round: int,
    now: float,
    first: int = 0,
    count: int = 2,
    weight: float = 0.25,
    exchange: int = 0,
) -> Arrived:
    return rounds.pushed(partner, exchange, round, first, count, weight, f"{partner}{round}.{first}", now)


def play(rounds: Rounds, round: int, lags: Sequence[tuple[str, float]], began: float) -> tuple[str, ...]:
    """A whole round with arrivals after these lags; who was skipped."""
    rounds.begin(plan(round, *sorted(p for p, _ in lags)), began)
    for partner, lag in sorted(lags, key=lambda item: item[1]):
        if rounds.complete(began + lag):
            break
        push(rounds, partner, round, began + lag)
    now = max([began, *(began + lag for _, lag in lags)])
    assert rounds.complete(now)
    return rounds.finish().skipped


# --- pushes ------------------------------------------------------------------------------------------------------


def test_every_block_goes_to_every_partner_with_its_weight() -> None:
    rounds = machine(blocks=5)
    rounds.begin(plan(3, A, B), 0.0)
    sent = list(rounds.tick(0.0))
    assert all(isinstance(s, Pushed) for s in sent)
    assert [(s.partner, s.round, s.first, s.count, s.weight) for s in sent if isinstance(s, Pushed)] == [
        (partner, 3, first, count, 0.25) for partner in (A, B) for first, count in ((0, 2), (2, 2), (4, 1))
    ]
    assert [s.exchange for s in sent] == list(range(100, 106))
    assert list(rounds.tick(0.1)) == []


def test_pushes_wait_for_credit_and_an_idle_link_takes_any_one() -> None:
    rounds = machine(blocks=6, credit_start=150, credit_max=150)  # less than a message
    rounds.begin(plan(0, A), 0.0)
    order = []
    for i in range(3):
        [sent] = rounds.tick(i / 100)
        order.append(sent.exchange)
        rounds.receipt(A, (sent.exchange,), i / 100 + 0.001)
    assert order == [100, 101, 102]


def test_what_could_not_be_sent_goes_first_later() -> None:
    rounds = machine(blocks=4)
    rounds.begin(plan(0, A), 0.0)
    [first, second] = [s for s in rounds.tick(0.0) if isinstance(s, Pushed)]
    for each in (second, first):
        rounds.unsent(each, 0.0)
    assert list(rounds.tick(0.005)) == []
    assert rounds.wake == pytest.approx(0.01)
    assert list(rounds.tick(rounds.wake)) == [first, second]


def test_a_newer_round_replaces_what_has_not_left() -> None:
    rounds = machine(blocks=6, credit_start=200)
    rounds.begin(plan(0, A), 0.0)
    assert len(list(rounds.tick(0.0))) == 1
    rounds.begin(plan(1, A), 0.1)
    rounds.receipt(A, (100,), 0.1)
    assert rounds.tally.replaced == 2
    assert {s.round for s in rounds.tick(0.1) if isinstance(s, Pushed)} == {1}


def test_a_silent_round_sends_nothing() -> None:
    rounds = machine()
    rounds.begin(plan(0, A), 0.0, silent=True)
    assert list(rounds.tick(0.0)) == []
    assert rounds.link(A).idle


# --- what was lost -----------------------------------------------------------------------------------------------


def lost_one() -> tuple[Rounds, list[Pushed]]:
    rounds = machine(blocks=6)
    rounds.begin(plan(0, A), 0.0)
    return rounds, [s for s in rounds.tick(0.0) if isinstance(s, Pushed)]


def test_an_overdue_receipt_is_asked_about_with_back_off() -> None:
    rounds, sent = lost_one()
    times = []
    for _ in range(7):
        now = rounds.wake
        assert list(rounds.tick(now)) == [Question(A, sent[-1].exchange)]
        assert rounds.wake > now
        times.append(round(now, 6))
    assert times == [0.3, 0.6, 1.2, 2.4, 4.8, 7.8, 10.8]


def test_pushes_that_never_came_are_sent_again_in_their_round() -> None:
    rounds, sent = lost_one()
    rounds.told(A, sent[-1].exchange, False, 0.5)
    assert rounds.tally.lost == 3
    again = list(rounds.tick(0.5))
    assert again == [replace(push, exchange=103 + i) for i, push in enumerate(sent)]
    rounds.told(A, 105, False, 0.6)
    assert rounds.tally.lost == 6, "and again, if need be"


def test_of_what_came_only_the_receipts_were_lost() -> None:
    rounds, sent = lost_one()
    rounds.receipt(A, (sent[0].exchange,), 0.1)
    rounds.told(A, sent[-1].exchange, True, 0.5)
    again = [replace(sent[1], exchange=103)]
    assert list(rounds.tick(0.5)) == again, "the one between may have come; its blocks are dropped if they had"
    rounds.receipt(A, (103,), 0.6)
    assert rounds.link(A).idle


def test_a_receipt_tells_that_earlier_pushes_are_lost() -> None:
    rounds, sent = lost_one()
    rounds.receipt(A, (sent[2].exchange,), 0.1)
    assert rounds.tally.lost == 2
    assert list(rounds.tick(0.1)) == [replace(push, exchange=103 + i) for i, push in enumerate(sent[:2])]


def test_pushes_of_a_round_that_is_over_are_not_sent_again() -> None:
    rounds, sent = lost_one()
    rounds.begin(plan(1, A), 0.2)
    rounds.told(A, sent[-1].exchange, False, 0.5)
    assert {s.round for s in rounds.tick(0.5) if isinstance(s, Pushed)} == {1}


@pytest.mark.parametrize(("came", "asked", "has"), [((), 5, False), ((4,), 5, False), ((5,), 5, True), ((4, 9), 5, True)])
def test_who_is_asked_knows_what_has_come(came: tuple[int, ...], asked: int, has: bool) -> None:
    rounds = machine()
    for exchange in came:
        push(rounds, A, 0, 0.0, exchange=exchange)
    assert rounds.has(A, asked) is has
    assert not rounds.has(B, asked)


def test_receipts_for_others_pushes_are_told_once() -> None:
    rounds = machine()
    for exchange, partner in ((7, A), (8, A), (7, B)):
        push(rounds, partner, 0, 0.0, exchange=exchange)
    assert rounds.receipts() == {A: [7, 8], B: [7]}
    assert rounds.receipts() == {}


# --- what is combined --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(A, B, C), (C, B, A), (B, C, A)])
def test_parts_are_in_neighbour_order_whatever_the_order_of_arrival(order: tuple[str, ...]) -> None:
    rounds = machine()
    rounds.begin(plan(0, A, B, C, weight=0.2), 0.0)
    for partner in order:
        assert not rounds.complete(1.0)
        assert push(rounds, partner, 0, 1.0, weight=0.2) is Arrived.KEPT
    assert rounds.complete(1.0)
    mixed = rounds.finish()
    assert mixed.skipped == ()
    assert mixed.parts == tuple((p, 0.2, {0: f"{p}0.0"}) for p in (A, B, C))


def test_blocks_of_one_neighbour_may_come_in_several_messages_and_any_order() -> None:
    rounds = machine(blocks=5)
    rounds.begin(plan(0, A), 0.0)
    for first, count in ((4, 1), (0, 2), (2, 2)):
        assert not rounds.complete(0.5)
        assert push(rounds, A, 0, 0.5, first, count) is Arrived.KEPT
    assert rounds.complete(0.5)
    assert rounds.finish().parts == ((A, 0.25, {4: "a0.4", 0: "a0.0", 2: "a0.2"}),)


def test_blocks_that_overlap_do_not_make_a_whole() -> None:
    rounds = machine(blocks=4)
    rounds.begin(plan(0, A), 0.0)
    assert push(rounds, A, 0, 0.1, 0, 2) is Arrived.KEPT
    for first, count in ((0, 2), (1, 2), (1, 1), (0, 4)):
        assert push(rounds, A, 0, 0.1, first, count) is Arrived.STALE
    assert not rounds.complete(0.1)
    assert rounds.tally.stale == 4


def test_what_comes_early_is_kept_for_its_round() -> None:
    rounds = machine()
    assert push(rounds, A, 0, 0.0) is Arrived.KEPT
    rounds.begin(plan(0, A), 1.0)
    assert push(rounds, A, 1, 1.0) is Arrived.KEPT
    assert rounds.complete(1.0)
    assert rounds.finish().parts == ((A, 0.25, {0: "a0.0"}),)
    rounds.begin(plan(1, A), 2.0)
    assert rounds.complete(2.0)
    assert rounds.finish().parts == ((A, 0.25, {0: "a1.0"}),)


def test_a_neighbour_that_is_past_this_round_is_not_waited_for() -> None:
    rounds = machine()
    rounds.begin(plan(4, A, B), 0.0)
    push(rounds, B, 4, 0.1)
    assert not rounds.complete(100.0)
    push(rounds, A, 5, 0.2)
    assert rounds.complete(0.2)
    assert rounds.finish().skipped == (A,)


@pytest.mark.parametrize(("theirs", "became"), [(0.25, Arrived.KEPT), (0.25 + 1e-15, Arrived.KEPT), (0.3, Arrived.UNEQUAL)])
def test_a_pair_mixes_only_if_both_computed_the_same_weight(theirs: float, became: Arrived) -> None:
    rounds = machine()
    rounds.begin(plan(0, A), 0.0)
    assert push(rounds, A, 0, 0.1, weight=theirs) is became
    assert rounds.complete(0.1), "nobody waits for what cannot be mixed"
    assert len(rounds.finish().parts) == (became is Arrived.KEPT)
    assert rounds.tally.unequal == (became is Arrived.UNEQUAL)


def test_unequal_weights_are_found_when_an_early_push_meets_its_round() -> None:
    rounds = machine()
    assert push(rounds, A, 0, 0.0, weight=0.3) is Arrived.KEPT
    rounds.begin(plan(0, A), 1.0)
    assert rounds.complete(1.0)
    mixed = rounds.finish()
    assert (mixed.parts, mixed.skipped, rounds.tally.unequal) == ((), (A,), 1)


def test_who_is_no_neighbour_is_not_mixed() -> None:
    rounds = machine()
    rounds.begin(plan(0, A), 0.0)
    assert push(rounds, C, 0, 0.1) is Arrived.UNEQUAL
    push(rounds, A, 0, 0.1)
    assert [p for p, _, _ in rounds.finish().parts] == [A]


def test_an_unequal_weight_of_the_round_before_does_not_end_this_one() -> None:
    rounds = machine()
    rounds.begin(plan(0, A), 0.0)
    push(rounds, A, 1, 0.1)
    rounds.finish()
    rounds._arrived.clear()
    rounds.begin(plan(1, A), 1.0)
    assert push(rounds, A, 0, 1.1, weight=0.3) is Arrived.UNEQUAL
    assert not rounds.complete(1.1)


# --- late and stale ----------------------------------------------------------------------------------------------


def skipped_once() -> Rounds:
    rounds = machine(ADAPTIVE)
    play(rounds, 0, [(A, 0.1), (B, 0.1)], 0.0)
    rounds.begin(plan(1, A, B), 10.0)
    push(rounds, A, 1, 10.1)
    assert not rounds.complete(10.3)
    assert rounds.complete(rounds.wake)
    assert rounds.finish().skipped == (B,)
    return rounds


def test_what_misses_the_deadline_is_late_in_its_round_and_the_next() -> None:
    rounds = skipped_once()
    assert push(rounds, B, 1, 10.6, 0, 1) is Arrived.LATE
    rounds.begin(plan(2, A, B), 11.0)
    assert push(rounds, B, 1, 11.1, 1, 1) is Arrived.LATE
    assert push(rounds, B, 1, 11.1, 1, 1) is Arrived.STALE, "once only"
    rounds.begin(plan(3, A, B), 12.0)
    assert push(rounds, B, 1, 12.1, 0, 1) is Arrived.STALE
    assert (rounds.tally.late, rounds.tally.stale) == (2, 2)


def test_what_was_combined_is_not_late_as_well() -> None:
    rounds = machine(ADAPTIVE)
    play(rounds, 0, [(A, 0.1)], 0.0)
    assert push(rounds, A, 0, 0.2) is Arrived.STALE
    rounds.begin(plan(1, A), 1.0)
    assert push(rounds, A, 0, 1.1) is Arrived.STALE


# --- the deadline ------------------------------------------------------------------------------------------------


def test_before_anything_is_known_everybody_is_waited_for() -> None:
    rounds = machine(ADAPTIVE)
    rounds.begin(plan(0, A), 0.0)
    assert not rounds.complete(ADAPTIVE.first - 1)
    assert rounds.complete(ADAPTIVE.first)


def test_a_large_part_has_a_deadline_of_its_own() -> None:
    """A small and a large part in turn: what is usual for the one is late for the other."""
    rounds = Rounds([(0, 100)] * 2, EXCHANGE, ADAPTIVE, 0, [[0], [1]])
    rounds.neighbour(A).lags[1].extend([2.9, 3.1] * 5)
    for round in range(20):
        began, part = 10.0 * round, round % 2
        rounds.begin(replace(plan(round, A), part=part), began)
        push(rounds, A, round, began + (0.01, 3.0)[part], first=part, count=1, exchange=round)
        assert rounds.complete(began + 3.0) and rounds.finish().skipped == ()
    rounds.begin(replace(plan(20, A), part=0), 200.0)
    assert rounds.complete(201.0)
    rounds.finish()
    rounds.begin(replace(plan(21, A), part=1), 210.0)
    assert not rounds.complete(213.0)


@pytest.mark.parametrize(
    ("lags", "deadline"),
    [
        ([0.1] * 10, 0.4),  # the floor
        ([0.1, 0.4] * 5, 0.25 + 4 * 1.4826 * 0.15),  # median and four deviations
        ([1.0, 1.2] * 5, 2.2),  # as much again, where that is more
        ([1.0] * 9 + [50.0], 2.0),  # one outlier changes nothing
    ],
)
def test_the_deadline_follows_the_arrivals(lags: list[float], deadline: float) -> None:
    rounds = machine(ADAPTIVE)
    rounds.neighbour(A).lags[0].extend(lags)
    rounds.begin(plan(5, A), 100.0)
    assert not rounds.complete(100.0 + deadline - 1e-6)
    assert rounds.wake == pytest.approx(100.0 + deadline)
    assert rounds.complete(rounds.wake)


def test_one_slow_neighbour_of_three_does_not_stretch_the_deadline() -> None:
    rounds = machine(ADAPTIVE)
    for partner, lag in ((A, 0.1), (B, 0.1), (C, 30.0)):
        rounds.neighbour(partner).lags[0].extend([lag] * 8)
    rounds.begin(plan(5, A, B, C), 0.0)
    assert rounds.complete(0.4 + 1e-6)


def test_who_is_late_again_and_again_is_named_and_no_longer_waited_for_until_it_is_in_time() -> None:
    rounds = machine(ADAPTIVE)
    play(rounds, 0, [(A, 0.1), (B, 0.1)], 0.0)
    for round in (1, 2, 3):
        assert not rounds.slow(B)
        rounds.begin(plan(round, A, B), 10.0 * round)
        push(rounds, A, round, 10.0 * round + 0.1)
        assert not rounds.complete(10.0 * round + 0.1)
        assert rounds.finish().skipped == (B,)
    assert rounds.slow(B) and not rounds.slow(A)
    rounds.begin(plan(4, A, B), 40.0)
    push(rounds, A, 4, 40.1)
    assert rounds.complete(40.1)
    assert push(rounds, B, 4, 40.2) is Arrived.KEPT
    assert rounds.finish().skipped == () and not rounds.slow(B)
    rounds.begin(plan(5, A, B), 50.0)
    push(rounds, A, 5, 50.1)
    assert not rounds.complete(50.1)


def test_with_the_deadline_off_nobody_is_skipped_or_slow() -> None:
    rounds = machine(OFF)
    for round in range(5):
        assert play(rounds, round, [(A, 0.1), (B, 500.0)], 1000.0 * round) == ()
    assert not rounds.slow(B) and rounds.tally.skipped == 0


# --- the view changes --------------------------------------------------------------------------------------------


def test_nobody_waits_for_the_gone_and_nobody_long_for_the_others() -> None:
    rounds = machine(OFF)
    rounds.begin(plan(0, A, B), 0.0)
    list(rounds.tick(0.0))
    rounds.partners({B: 0}, 5.0)
    assert not rounds.complete(6.9)
    assert rounds.complete(7.0), "b may not know that it is waited for"
    assert set(rounds.links) == {B}
    rounds.begin(plan(1, B), 8.0)
    assert not rounds.complete(1000.0), "a new round, a new wait"


def test_a_change_between_two_rounds_is_harmless() -> None:
    rounds = machine(OFF)
    rounds.partners({A: 0}, 0.0)
    rounds.begin(plan(0, A), 1.0)
    assert not rounds.complete(100.0)


@pytest.mark.parametrize(("deadline", "arrive"), [(ADAPTIVE, False), (OFF, True)])
def test_a_round_goes_on_until_the_own_blocks_have_left_or_arrived(deadline: DeadlineConfig, arrive: bool) -> None:
    rounds = machine(deadline)
    rounds.begin(plan(0, A), 0.0)
    assert not rounds.departed(0.0)
    sent = [push for push in rounds.tick(0.0) if isinstance(push, Pushed)]
    assert rounds.departed(0.0) is not arrive
    rounds.receipt(A, [push.exchange for push in sent], 0.1)
    assert rounds.departed(0.1)


# --- who was away ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "heard", "deadline", "expected"),
    [
        (10, [10, 10], ADAPTIVE, 11),
        (10, [11, 11], ADAPTIVE, 11),
        (10, [12, 12], ADAPTIVE, 12),  # one round behind is behind for good, unless it is made up for
        (10, [14, 14], ADAPTIVE, 14),
        (10, [60, 60, 61], ADAPTIVE, 60),
        (10, [60, 10, 10], ADAPTIVE, 11),
        (10, [60, 10], ADAPTIVE, 60),  # of two the one ahead: the other may be slow, and not yet known for it
        (10, [10**12, 10, 10], ADAPTIVE, 11),  # one of three leads nobody away
        (10, [60, 60], OFF, 11),
    ],
)
def test_who_was_stopped_rejoins_the_others_round(own: int, heard: list[int], deadline: DeadlineConfig, expected: int) -> None:
    rounds = machine(deadline)
    rounds.begin(plan(own, A, B, C), 0.0)
    rounds.finish()
    for partner, round in zip((A, B, C), heard, strict=False):
        push(rounds, partner, round, 1.0)
    assert rounds.next_round() == expected


def test_the_first_round_is_a_joiners_donors_next() -> None:
    rounds = machine()
    assert rounds.next_round() == 0
    rounds.first = 18
    assert rounds.next_round() == 18


# --- bounds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [range(10, 1000, 7), range(1000, 10, -7), [10**15 - i for i in range(300)]])
def test_of_rounds_far_ahead_only_the_newest_are_kept(order: Sequence[int]) -> None:
    rounds = machine()
    rounds.begin(plan(0, A), 0.0)
    for round in order:
        push(rounds, A, round, 0.1)
    kept = sorted(r for r, p in rounds._arrived if p == A)
    assert kept == sorted(order)[-AHEAD:]


@pytest.mark.parametrize("round", [-1, -5, -(10**15)])
def test_rounds_that_never_were_leave_nothing(round: int) -> None:
    rounds = machine()
    rounds.begin(plan(3, A), 0.0)
    assert push(rounds, A, round, 0.1) is Arrived.STALE
    assert rounds._arrived == {}


def test_payloads_are_dropped_once_they_are_combined() -> None:
    rounds = machine()
    play(rounds, 0, [(A, 0.1), (B, 0.2)], 0.0)
    assert all(delivery.payloads == {} for delivery in rounds._arrived.values())
    for round in range(1, 50):
        play(rounds, round, [(A, 0.1), (B, 0.2)], float(round))
    assert len(rounds._arrived) <= 4 and len(rounds._out) == 0


# --- any order of events -----------------------------------------------------------------------------------------

NODES = (A, B, C)


class AnyOrder(RuleBasedStateMachine):
    """Events as they come: nothing is mixed twice, nothing spins, every deadline is kept."""

    @initialize(enabled=st.booleans())
    def start(self, enabled: bool) -> None:
        self.rounds = machine(replace(ADAPTIVE, enabled=enabled), blocks=3, credit_start=250)
        self.now, self.round = 0.0, -1
        self.live = list(NODES)
        self.under_way: dict[str, list[Pushed]] = {p: [] for p in NODES}
        self.used: set[tuple[str, int, int]] = set()

    @rule()
    def begin(self) -> None:
        if not self.rounds.waiting:
            self.round = self.rounds.next_round()
            self.rounds.begin(plan(self.round, *self.live), self.now)

    @rule(after=st.sampled_from([0.0, 0.01, 0.3, 5.0]), fates=st.lists(st.integers(0, 4), min_size=12, max_size=12))
    def tick(self, after: float, fates: list[int]) -> None:
        self.now += after
        for _ in range(20):
            for instruction, fate in zip(self.rounds.tick(self.now), fates * 5, strict=False):
                if isinstance(instruction, Question):
                    assert instruction.exchange in self.rounds.links[instruction.partner].parcels
                elif fate == 0:
                    self.rounds.unsent(instruction, self.now)
                else:
                    assert instruction.round == self.round
                    self.under_way[instruction.partner].append(instruction)
            if self.rounds.wake > self.now or (self.rounds.waiting and self.rounds.complete(self.now)):
                return
        raise AssertionError("the machine wants to be woken for ever, and does nothing")

    @rule(partner=st.sampled_from(NODES), ahead=st.integers(-3, 4), first=st.integers(0, 2), count=st.integers(1, 2))
    def pushed(self, partner: str, ahead: int, first: int, count: int) -> None:
        round, count = self.round + ahead, min(count, 3 - first)
        weight = 0.25 if ahead < 4 else 0.3
        became = push(self.rounds, partner, round, self.now, first, count, weight)
        if became is Arrived.LATE:
            self.use(partner, round, range(first, first + count))

    @rule()
    def finish(self) -> None:
        if self.rounds.waiting and self.rounds.complete(self.now):
            mixed = self.rounds.finish()
            assert [p for p, _, _ in mixed.parts] == [p for p, _ in mixed.plan.ins if p in {q for q, _, _ in mixed.parts}]
            for partner, _, payloads in mixed.parts:
                for payload in payloads.values():
                    assert str(payload).startswith(f"{partner}{self.round}.")
                for block in self.rounds._arrived[self.round, partner].blocks:
                    self.use(partner, self.round, [block])

    def use(self, partner: str, round: int, blocks: Sequence[int]) -> None:
        for block in blocks:
            assert (partner, round, block) not in self.used, "mixed twice"
            self.used.add((partner, round, block))

    @rule(partner=st.sampled_from(NODES), came=st.booleans(), which=st.integers(0, 5))
    def receipt(self, partner: str, came: bool, which: int) -> None:
        waiting = self.under_way[partner]
        if waiting and partner in self.live:
            exchange = waiting[which % len(waiting)].exchange
            if came:
                self.rounds.receipt(partner, (exchange,), self.now)
            else:
                self.rounds.told(partner, exchange, False, self.now)
            assert all(e > exchange for e in self.rounds.link(partner).parcels)
            self.under_way[partner] = [p for p in waiting if p.exchange > exchange]

    @rule(live=st.sets(st.sampled_from(NODES)))
    def view(self, live: set[str]) -> None:
        self.live = sorted(live)
        self.rounds.partners(dict.fromkeys(self.live, 0), self.now)
        for gone in set(NODES) - live:
            self.under_way[gone].clear()
        if self.rounds.waiting:
            assert self.rounds.complete(self.now + 2.0)

    def teardown(self) -> None:
        if hasattr(self, "rounds"):
            assert len(self.rounds._arrived) <= len(NODES) * (2 + AHEAD)
            assert self.rounds.wake <= math.inf


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
