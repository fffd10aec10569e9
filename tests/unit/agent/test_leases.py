"""The lease machine, event by event."""

import random

import pytest

from p2p.agent.finished import Finished
from p2p.agent.instructions import Send
from p2p.agent.leases import CARRIED, TAKEN, Begin, Leases, Over, Wait
from p2p.agent.shares import is_home, np
from p2p.config import WorkConfig
from p2p.errors import WireError
from p2p.net.messages import Lease, Work

CONFIG = WorkConfig()
CHUNKS = 40


def machine(node: str = "a", members: str = "ab", chunks: int = CHUNKS, epoch: int = 0) -> Leases:
    made = Leases(node, 0, chunks, 16, CONFIG, random.Random(0), 1 << 20, -0.5)
    made.seat(members, -0.5)
    made.begin(epoch, 0.0)
    return made


def work(*leases: Lease, floor: int = 0, bitmap: bytes = b"", chunks: int = CHUNKS, reply: bool = False) -> Work:
    return Work(0, chunks, floor, bitmap, leases, reply)


def lease(node: str, *taken: int, begun: int = 0, version: int = 1, pace: float = 0.0, term: float = 10.0) -> Lease:
    return Lease(node, version, pace, term, begun, taken)


def taken(leases: Leases, now: float = 0.0) -> list[int]:
    """All that it takes, one after the other, as a trainer that steps through each at once."""
    found = []
    while not isinstance(answer := leases.take(now), Over):
        if isinstance(answer, Wait):
            now = answer.until
            continue
        found.append(answer.chunk)
        leases.progress(16, [answer.chunk], now)
    return found


def home(node: str, members: str) -> set[int]:
    at = np.arange(CHUNKS)
    return set(at[is_home(node, at, dict.fromkeys(members, 1.0))].tolist())


def own(leases: Leases, now: float = 0.0) -> Lease:
    return leases._word((), now).leases[0]


def test_alone_a_node_takes_everything_once() -> None:
    alone = machine(members="a")
    order = taken(alone)
    assert sorted(order) == list(range(CHUNKS))
    assert order != sorted(order)
    assert alone.complete(0) and alone.current == 1
    alone.begin(1, 1.0)
    assert sorted(taken(alone, 1.0)) == list(range(CHUNKS, 2 * CHUNKS))


def test_home_chunks_are_begun_at_once_and_others_when_the_claim_has_settled() -> None:
    a = machine()
    at_home = home("a", "ab")
    first = [answer.chunk for _ in at_home if isinstance(answer := a.take(0.0), Begin)]
    a.progress(0, first, 0.0)
    assert set(first) == at_home
    assert a.take(0.0) == Wait(CONFIG.settle)
    answer = a.take(CONFIG.settle)
    assert isinstance(answer, Begin) and answer.chunk not in at_home


def test_home_chunks_settle_too_where_homes_have_just_changed() -> None:
    a = machine()
    a.seat("abc", 0.0)
    assert a.take(0.0) == Wait(CONFIG.settle)
    assert isinstance(a.take(CONFIG.settle), Begin)


def test_what_another_has_taken_is_left_alone() -> None:
    a = machine()
    b = sorted(home("b", "ab"))
    a.handle("b", work(lease("b", *b[:5], begun=2)), 0.0)
    assert set(taken(a)) == set(range(CHUNKS)) - set(b[:5])
    assert not a.complete(0)


@pytest.mark.parametrize("gone", ["dead", "silent", "resting"])
def test_what_a_node_leaves_is_taken_up(gone: str) -> None:
    a = machine()
    a.handle("b", work(lease("b", 1, 2, 3, begun=1, term=10.0)), 0.0)
    taken(a)
    assert not a.left(9.9)
    if gone == "dead":
        a.seat("a", 9.9)
        now = 9.9
    elif gone == "resting":
        a.handle("b", work(lease("b", 1, 2, 3, version=2, term=0.0)), 9.9)
        now = 9.9
    else:
        now = 10.0
    assert a.left(now)
    assert sorted(taken(a, now)) == [1, 2, 3]
    assert a.complete(0)


def test_a_lease_lives_on_with_each_newer_version() -> None:
    a = machine()
    a.handle("b", work(lease("b", 7, begun=1)), 0.0)
    taken(a)
    a.handle("b", work(lease("b", 7, begun=1, version=2)), 9.0)
    a.handle("b", work(lease("b", 7, begun=1, version=2)), 15.0)  # relayed, not renewed
    assert not a.left(18.9)
    assert a.left(19.0)


def test_an_old_word_is_passed_over() -> None:
    a = machine()
    a.handle("b", work(lease("b", 7, version=5)), 0.0)
    a.handle("b", work(lease("b", 8, version=4)), 0.0)
    assert a._held(0.0) == {7}


def test_two_claims_of_one_chunk_leave_it_to_one() -> None:
    a, b = machine("a"), machine("b")
    for leases in (a, b):
        leases._claimed[7] = 1.0
    word_a, word_b = work(own(a)), work(own(b))
    a.handle("b", word_b, 0.1)
    b.handle("a", word_a, 0.1)
    assert (7 in a._claimed) + (7 in b._claimed) == 1


def test_a_claim_yields_to_who_has_begun() -> None:
    for node in "ab":
        leases = machine(node)
        leases._claimed[7] = 1.0
        other = "b" if node == "a" else "a"
        leases.handle(other, work(lease(other, 7, begun=1)), 0.1)
        assert 7 not in leases._claimed


def test_finished_chunks_are_dropped_from_the_claims_and_doubles_counted() -> None:
    a = machine()
    answer = a.take(0.0)
    assert isinstance(answer, Begin)
    a._claimed[39] = 5.0
    bitmap = (1 << answer.chunk | 1 << 39).to_bytes(8, "little")
    a.handle("b", work(floor=0, bitmap=bitmap), 0.0)
    assert 39 not in a._claimed
    a.progress(16, [answer.chunk], 0.1)
    assert a.duplicates == 1


def test_near_the_end_a_slow_node_leaves_the_rest_to_the_fast() -> None:
    slow = machine()
    slow._slowness = {"a": 4.0, "b": 1.0}
    slow.handle("b", work(lease("b", 0, begun=1), floor=0, bitmap=((1 << CHUNKS) - 8).to_bytes(8, "little")), 0.0)
    assert isinstance(slow.take(0.0), Over)  # b is done with its own and the 2 that are left before this node is with one
    slow._slowness = {"a": 1.0, "b": 1.0}
    assert not isinstance(slow.take(0.0), Over)


def test_speeds_are_planned_with_when_they_differ_enough() -> None:
    a = machine()
    for step in range(30):
        a.progress(16, [], step * 0.1)
    pace = own(a).pace
    assert pace == pytest.approx(0.1 / 16)
    for version, factor, plans in ((1, 1.15, 0), (2, 1.29, 0), (3, 2.0, 1), (4, 2.2, 1), (5, 1.0, 2)):
        a.handle("b", work(lease("b", version=version, pace=pace * factor)), 10.0 + version)
        a.tick(20.0 + 2 * version)
        assert a.plans == plans
    assert a.share == pytest.approx(0.5)


def test_the_term_follows_the_steps() -> None:
    a = machine()
    assert own(a).term == CONFIG.first_term
    a.progress(16, [], 0.0)
    a.progress(16, [], 0.1)
    assert own(a, 0.1).term == CONFIG.term
    a.progress(16, [], 100.1)
    assert own(a, 100.1).term == pytest.approx(300.0)
    a.rest(101.0)
    assert own(a, 101.0).term == 0.0


def test_the_term_runs_on_while_only_the_agent_speaks() -> None:
    a = machine()
    a.take(0.0)
    a._claimed[7] = 0.0
    a.handle("b", work(lease("b", 7, begun=1)), 50.0)  # a drops its claim, and says so
    assert own(a, 50.0).term == pytest.approx(CONFIG.first_term - 50.0)
    assert own(a, 70.0).term == 0.0


def test_a_pause_between_passes_is_not_measured() -> None:
    a = machine()
    a.progress(16, [], 0.0)
    a.progress(16, [], 0.1)
    a.begin(1, 50.0)
    a.progress(16, [], 60.0)
    assert own(a).pace == pytest.approx(0.1 / 16)


def test_one_long_step_is_no_slowness_and_many_are() -> None:
    a = machine()
    now = 0.0
    for _ in range(100):
        now += 0.1
        a.progress(16, [], now)
    a.progress(16, [], now + 60.0)
    now += 60.0
    assert own(a, now).pace < 1.2 * 0.1 / 16
    for _ in range(150):
        now += 1.0
        a.progress(16, [], now)
    assert own(a, now).pace == pytest.approx(1.0 / 16, rel=0.05)


def test_a_question_is_answered_with_all_that_is_known() -> None:
    a = machine(members="abc")
    a.handle("c", work(lease("c", 5)), 0.0)
    answer = Begin(-1)
    while not isinstance(answer, Begin) or answer.chunk < 0:
        answer = a.take(0.0)
    a.progress(16, [answer.chunk], 0.0)
    sends = a.handle("b", work(lease("b"), reply=True), 0.0)
    word = sends[0].message
    assert sends[0].node == "b" and isinstance(word, Work)
    assert {found.node for found in word.leases} >= {"a", "c"}
    assert answer.chunk in Finished(word.floor, word.finished)


def test_a_joiner_asks_some_members() -> None:
    a = machine(members="abcdefg")
    sends = a.ask(0.0)
    assert [send.node for send in sends] == ["b", "c", "d"]
    assert all(isinstance(send, Send) and send.message.reply for send in sends)  # type: ignore[union-attr]
    assert not a.synced
    a.handle("b", work(floor=CHUNKS + 3), 0.0)
    assert a.synced and a.current == 1


def test_leftovers_of_an_earlier_epoch_come_first() -> None:
    a = machine(epoch=1, members="a")
    a.handle("b", work(floor=0, bitmap=((1 << CHUNKS) - 2).to_bytes(8, "little")), 0.0)
    assert taken(a)[0] == 0


def test_a_checkpoint_goes_on() -> None:
    a = machine(members="a")
    a.restore(Finished(10), [12, 3], 0.0)
    assert sorted(taken(a)) == [10, 11, *range(13, CHUNKS)]
    a.progress(16, [12], 1.0)
    assert a.complete(0)


@pytest.mark.parametrize(
    "message",
    [
        work(floor=-1),
        work(floor=1 << 63),
        work(bitmap=b"\xff" * ((1 << 17) + 1)),
        work(lease("b", version=-1)),
        work(lease("b", pace=-1.0)),
        work(lease("b", term=-1.0)),
        work(lease("b", term=1e9)),
        work(lease("b", 1, begun=2)),
        work(lease("b", -1)),
        work(lease("b", 1 << 63)),
        work(lease("b", *range(TAKEN + 1))),
    ],
)
def test_what_cant_be_is_refused(message: Work) -> None:
    a = machine()
    with pytest.raises(WireError):
        a.handle("b", message, 0.0)
    assert a.finished == Finished()
    assert a._held(0.0) == set()


def test_another_cut_is_not_mixed_up() -> None:
    a = machine()
    a.handle("b", work(lease("b", 1), floor=30, chunks=41), 0.0)
    assert (a.refused, a.finished.floor, a._held(0.0)) == (1, 0, set())


def test_messages_are_bounded() -> None:
    names = [f"n{i}" for i in range(200)]
    a = Leases("a", 0, 5000, 16, CONFIG, random.Random(0), 1 << 20, 0.0)
    a.seat(names, 0.0)
    a.begin(0, 0.0)
    a.handle("n0", work(*(lease(name, 1) for name in names), chunks=5000), 0.0)
    a._begun = dict.fromkeys(range(1000))
    word = a._word(a._heard, 0.0)
    assert len(word.leases) == CARRIED + 1
    assert len(word.leases[0].taken) == word.leases[0].begun == TAKEN


def test_a_stranger_holds_nothing() -> None:
    a = machine()
    a.handle("b", work(lease("x", 1, 2), lease("a", 3, version=1 << 40)), 0.0)
    assert a._held(0.0) == set()
