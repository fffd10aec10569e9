"""How news merges: the precedence table, and that neither order nor repetition matters."""

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from p2p.agent.figures import ENTRY, MOST
from p2p.agent.membership import Membership
from p2p.agent.records import LIVE, MemberInfo, State, batches, identify
from p2p.config import LAN
from p2p.net.messages import Accusation, Envelope, Figures, Gossip, News, Phase, Record, Sync
from p2p.net.wire import HEADER_BYTES, encode
from tests.simulation.membership_world import EPOCH, make_record, sign, verify

OWN, SUBJECT, OTHER = make_record(0), make_record(1), make_record(2)
ME, NODE, WITNESS = (identify(record.key) for record in (OWN, SUBJECT, OTHER))


def machine(seed: int = 0) -> Membership:
    return Membership(OWN, sign, verify, LAN.membership, random.Random(seed), 0.0)


def record(incarnation: int, phase: Phase = Phase.TRAINING, index: int = 1) -> Record:
    return make_record(index, EPOCH + incarnation, phase=int(phase))


def piece(kind: str, incarnation: int, node: str = NODE) -> News:
    """One piece of news about NODE."""
    if kind in ("alive", "left"):
        return News((record(incarnation, Phase.LEFT if kind == "left" else Phase.TRAINING),))
    return News(accusations=(Accusation(node, EPOCH + incarnation, WITNESS, kind == "dead"),))


def holding(kind: str) -> Membership:
    """A machine that holds NODE so, at incarnation 5."""
    held = machine()
    for step in ["alive"] + ([] if kind == "alive" else [kind]):
        held.meet(piece(step, 5), 0.0)
    assert held.members[NODE].state == kind
    return held


TABLE = [
    # message, overrides at a lower, the same, a higher incarnation than stored
    ("alive", "alive", ("alive", "alive", "alive")),
    ("alive", "suspect", ("suspect", "suspect", "alive")),
    ("alive", "dead", ("dead", "dead", "alive")),
    ("alive", "left", ("left", "left", "alive")),
    ("suspect", "alive", ("alive", "suspect", "suspect")),
    ("suspect", "suspect", ("suspect", "suspect", "suspect")),
    ("suspect", "dead", ("dead", "dead", "dead")),
    ("suspect", "left", ("left", "left", "left")),
    ("dead", "alive", ("alive", "dead", "dead")),
    ("dead", "suspect", ("suspect", "dead", "dead")),
    ("dead", "dead", ("dead", "dead", "dead")),
    ("left", "alive", ("alive", "left", "left")),
    ("left", "suspect", ("suspect", "left", "left")),
    ("left", "dead", ("dead", "left", "left")),
    ("left", "left", ("left", "left", "left")),
]


@pytest.mark.parametrize(("message", "stored", "outcomes"), TABLE, ids=[f"{m}-on-{s}" for m, s, _ in TABLE])
def test_precedence(message: str, stored: str, outcomes: tuple[str, str, str]) -> None:
    for incarnation, outcome in zip((4, 5, 6), outcomes, strict=True):
        held = holding(stored)
        held.meet(piece(message, incarnation), 1.0)
        assert held.members[NODE].state == outcome
        held.validate_state()


def test_a_later_death_does_not_yield_to_a_delayed_word() -> None:
    held = holding("dead")
    held.meet(piece("dead", 9), 1.0)
    held.meet(piece("alive", 8), 2.0)
    assert held.members[NODE].state is State.DEAD
    held.meet(piece("alive", 10), 3.0)
    assert held.members[NODE].state is State.ALIVE


def test_no_accusation_brings_anybody_to_life() -> None:
    held = holding("dead")
    held.meet(piece("suspect", 50), 1.0)
    assert held.members[NODE].state is State.DEAD
    assert NODE not in held.view


PIECES = st.tuples(st.sampled_from(["alive", "left", "suspect", "dead"]), st.integers(0, 4))


def outcome(pieces: list[tuple[str, int]]) -> tuple[State, Record, int, int, int]:
    held = machine()
    held.meet(News((record(0),)), 0.0)
    for kind, incarnation in pieces:
        held.meet(piece(kind, incarnation), 0.0)
        held.validate_state()
    info = held.members[NODE]
    charges = (number if number >= info.record.incarnation else -1 for number in (info.suspected, info.buried))
    return info.state, info.record, *charges, held.view.digest


@given(st.lists(PIECES, max_size=5), st.randoms(use_true_random=False), st.data())
@settings(max_examples=150)
def test_order_and_repetition_do_not_matter(
    pieces: list[tuple[str, int]], shuffler: random.Random, data: st.DataObject
) -> None:
    again = pieces + data.draw(st.lists(st.sampled_from(pieces), max_size=3)) if pieces else pieces
    mixed = list(again)
    shuffler.shuffle(mixed)
    assert outcome(mixed) == outcome(pieces)


def test_all_orders_of_a_life() -> None:
    life = [("alive", 0), ("suspect", 0), ("alive", 1), ("dead", 1), ("alive", 2)]
    assert {outcome(list(order))[0] for order in itertools.permutations(life)} == {State.ALIVE}


@pytest.mark.parametrize("record_first", [True, False])
@pytest.mark.parametrize(("kind", "state"), [("suspect", "suspect"), ("dead", "dead")])
def test_an_accusation_may_come_before_its_subject(kind: str, state: str, record_first: bool) -> None:
    held = machine()
    for news in (piece("alive", 5), piece(kind, 5))[:: 1 if record_first else -1]:
        held.meet(news, 0.0)
    assert held.members[NODE].state == state
    held.validate_state()


def test_a_hint_is_passed_on_once_and_forgotten_after_a_minute() -> None:
    held = machine()
    held.meet(News((OTHER,)), 0.0)
    rumour = piece("dead", 5).accusations[0]
    for _ in range(3):
        held.handle(WITNESS, Gossip(News(accusations=(rumour,))), 0.0)
    assert len(held._spreader._queue) == 2  # the witness's record, and the rumour
    held.meet(piece("alive", 5), 61.0)
    assert held.members[NODE].state is State.ALIVE


def test_push_pull_makes_nobody_dead_at_once() -> None:
    held = holding("alive")
    held.handle(WITNESS, Sync(piece("dead", 5), reply=False), 1.0)
    assert held.members[NODE].state is State.SUSPECT


def test_push_pull_does_not_hand_tombstones_on() -> None:
    held, joiner = holding("dead"), machine(1)
    joiner.handle(WITNESS, Sync(held.news(), reply=False), 1.0)
    assert NODE not in joiner.members


def test_news_of_everybody_fits_its_messages() -> None:
    long = [make_record(n, control="tcp://" + "x" * 250, data="tcp://" + "y" * 250, site="é" * 64) for n in range(1, 1500)]
    charge, figures = Accusation(NODE, 2**62, WITNESS, False), Figures(NODE, 2**62, b"x" * MOST * ENTRY, b"s" * 64)
    messages = list(batches(item for r in long for item in (r, charge, figures)))
    assert sum(len(news.records) for news in messages) == sum(len(news.accusations) for news in messages) == 1499
    assert sum(len(news.figures) for news in messages) == 1499
    envelope = Envelope(b"s" * 16, ME, 2**62, 2**63)
    sizes = [len(encode(envelope, Sync(news, True))) for news in messages]
    assert max(sizes) <= HEADER_BYTES
    assert len(messages) < 16


def test_one_record_of_two_under_one_incarnation_wins_everywhere() -> None:
    one, two = make_record(1, site="oslo"), make_record(1, site="rome")
    there, back = machine(), machine()
    for held, order in ((there, (one, two)), (back, (two, one))):
        for each in order:
            held.meet(News((each,)), 0.0)
    assert there.members[NODE].record == back.members[NODE].record


class Table(RuleBasedStateMachine):
    """Anything may be said of five nodes and of the machine itself, in any order, and time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = machine()
        self.now = 0.0
        self.highest: dict[str, int] = {}
        self.life = itertools.count(1)

    nodes = st.integers(0, 5)
    numbers = st.integers(0, 20)

    @rule(index=nodes, number=numbers, phase=st.sampled_from(Phase))
    def word(self, index: int, number: int, phase: Phase) -> None:
        if index:
            self.machine.handle(WITNESS, Gossip(News((record(number, phase, index),))), self.now)

    @rule(index=nodes, number=numbers, dead=st.booleans(), synced=st.booleans(), accuser=nodes)
    def charge(self, index: int, number: int, dead: bool, synced: bool, accuser: int) -> None:
        said = Accusation(identify(make_record(index).key), EPOCH + number, identify(make_record(accuser).key), dead)
        news = News(accusations=(said,))
        self.machine.handle(WITNESS, Sync(news, False) if synced else Gossip(news), self.now)

    @rule(seconds=st.sampled_from([0.01, 0.5, 1.0, 15.0, 50.0]))
    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.machine.wake <= end:
            self.now = max(self.now, self.machine.wake)
            self.machine.tick(self.now)
        self.now = end

    @rule(index=nodes)
    def lose(self, index: int) -> None:
        self.machine.closed(identify(make_record(index).key), "reset", self.now)

    @rule(phase=st.sampled_from([Phase.TRAINING, Phase.ARRIVED, Phase.DONE]))
    def announce(self, phase: Phase) -> None:
        before = self.machine.record.incarnation
        self.machine.announce(now=self.now, phase=phase)
        assert self.machine.record.incarnation > before

    @invariant()
    def in_step(self) -> None:
        self.machine.validate_state()

    @invariant()
    def monotone(self) -> None:
        for node, info in self.machine.members.items():
            number = max(info.record.incarnation, info.suspected, info.buried)
            assert number >= self.highest.get(node, 0)
            self.highest[node] = number

    @invariant()
    def alive_to_itself(self) -> None:
        assert self.machine.members[ME].state in LIVE - {State.SUSPECT}
        assert verify(self.machine.record)
        assert ME in self.machine.view


TestTable = Table.TestCase
TestTable.settings = settings(max_examples=60, stateful_step_count=30)


def test_the_state_is_a_function_of_three_maxima() -> None:
    info = MemberInfo(replace(SUBJECT, incarnation=5), 0.0)
    table = {(4, 4): "alive", (5, 4): "suspect", (9, 4): "suspect", (4, 5): "dead", (9, 5): "dead", (-1, -1): "alive"}
    for (info.suspected, info.buried), state in table.items():
        assert info.judge() == state
