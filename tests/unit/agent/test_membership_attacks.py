"""What a member that lies, forges, replays or floods can do to one machine: nothing that lasts."""

import random
from dataclasses import replace

import pytest

from p2p.agent.instructions import Changed, Instruction, Refused, Returned, Send
from p2p.agent.membership import Membership
from p2p.agent.records import DAY, HOUR, LIVE, State, identify, once_per_record
from p2p.agent.roster import Hints
from p2p.config import LAN
from p2p.net.keys import Identity, verify_record
from p2p.net.messages import Accusation, Gossip, Nack, News, Phase, Ping, PingRequest, Pong, Pulse, Record, Sync
from tests.simulation.membership_world import EPOCH, make_record, sign, verify

RECORDS = [make_record(index) for index in range(6)]
ME, NODE, LIAR, WITNESS, *_ = IDS = [identify(record.key) for record in RECORDS]


def machine(others: int = 5) -> Membership:
    made = Membership(RECORDS[0], sign, verify, LAN.membership, random.Random(1), 0.0)
    made.meet(News(tuple(RECORDS[1 : 1 + others])), 0.0)
    return made


def refusals(instructions: list[Instruction]) -> list[str]:
    return [each.reason for each in instructions if isinstance(each, Refused)]


def sent(instructions: list[Instruction], kind: type) -> list[Send]:
    return [each for each in instructions if isinstance(each, Send) and isinstance(each.message, kind)]


def hear(held: Membership, *items: Record | Accusation, now: float = 1.0) -> list[Instruction]:
    records = tuple(item for item in items if isinstance(item, Record))
    accusations = tuple(item for item in items if isinstance(item, Accusation))
    return held.handle(LIAR, Gossip(News(records, accusations)), now)


FORGED = [
    ("signature", lambda r: replace(r, incarnation=r.incarnation + 1)),
    ("signature", lambda r: replace(r, incarnation=r.incarnation + 1, control="tcp://evil:1")),
    ("signature", lambda r: replace(r, incarnation=r.incarnation + 1, phase=int(Phase.LEFT))),
    ("incarnation", lambda r: sign(replace(r, incarnation=EPOCH + DAY + 2000))),
    ("incarnation", lambda r: sign(replace(r, incarnation=2**64 - 1))),
    ("contract", lambda r: sign(replace(r, incarnation=r.incarnation + 1, contract=b"d" * 16))),
    ("malformed", lambda r: replace(r, incarnation=r.incarnation + 1, signature=b"")),
    ("malformed", lambda r: replace(r, key=b"k" * 200_000)),
    ("malformed", lambda r: sign(replace(r, incarnation=r.incarnation + 1, phase=9))),
    ("malformed", lambda r: sign(replace(r, incarnation=r.incarnation + 1, site="x" * 65))),
    ("malformed", lambda r: sign(replace(r, incarnation=r.incarnation + 1, control="x" * 257))),
]


@pytest.mark.parametrize(("reason", "forge"), FORGED)
def test_forged_records_change_nothing(reason: str, forge: object) -> None:
    held = machine()
    assert callable(forge)
    assert refusals(hear(held, forge(RECORDS[1]))) == [reason]
    assert held.refused[reason] == 1
    assert held.members[NODE].record == RECORDS[1]
    assert len(held.members) == 6
    held.validate_state()


def test_a_real_signature_holds_and_a_foreign_one_does_not() -> None:
    identity, thief = Identity.from_seed(b"a" * 32), Identity.from_seed(b"b" * 32)
    blank = replace(RECORDS[0], key=identity.key)
    own = thief.sign_record(blank)
    held = Membership(own, thief.sign_record, verify_record, LAN.membership, random.Random(1), 0.0)
    real = identity.sign_record(blank)
    held.meet(News((real,)), 0.0)
    assert held.members[identity.node].state is State.ALIVE
    later = replace(real, incarnation=real.incarnation + 1)
    for forged in (later, replace(thief.sign_record(later), key=identity.key)):
        assert refusals(held.handle(thief.node, Gossip(News((forged,))), 0.0)) in ([], ["signature"])
        held.meet(News((forged,)), 0.0)
    assert held.members[identity.node].record == real
    assert held.refused["signature"] == 2


def test_a_forger_costs_one_signature_a_message_and_one_line_in_the_log() -> None:
    calls = []

    def counted(record: Record) -> bool:
        calls.append(record)
        return verify(record)

    held = Membership(RECORDS[0], sign, counted, LAN.membership, random.Random(1), 0.0)
    forged = [replace(make_record(index), control="tcp://evil:1") for index in range(10, 1000)]
    assert refusals(hear(held, *forged)) == ["signature"]
    assert len(calls) == 1
    assert refusals(hear(held, *forged[1:])) == []
    assert held.refused["signature"] == 2


def test_a_record_is_verified_once_per_process() -> None:
    calls = []

    def counted(record: Record) -> bool:
        calls.append(record)
        return True

    for seed in range(20):
        held = Membership(RECORDS[0], sign, counted, LAN.membership, random.Random(seed), 0.0)
        held.meet(News(tuple(replace(record) for record in RECORDS[1:])), 0.0)
    assert len(calls) == 5
    assert once_per_record(counted) is once_per_record(counted)


def test_replayed_records_change_nothing() -> None:
    held = machine()
    newer = make_record(1, EPOCH + 7, control="mem://moved:1")
    hear(held, newer)
    assert hear(held, RECORDS[1], make_record(1, EPOCH + 6, phase=int(Phase.LEFT))) == []
    assert held.members[NODE].record == newer


def test_the_dead_are_not_revived_by_a_replay_but_told() -> None:
    held = machine()
    hear(held, Accusation(NODE, EPOCH, WITNESS, dead=True))
    answers = held.meet(News((RECORDS[1],)), 2.0)
    assert held.members[NODE].state is State.DEAD
    assert answers == [Send(NODE, Gossip(News(accusations=(Accusation(NODE, EPOCH, WITNESS, True),))))]
    assert held.meet(News((RECORDS[1],)), 2.5) == [], "once per probe interval"


@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("accuser", [LIAR, WITNESS, ME, NODE, "f" * 32])
def test_any_accusation_of_the_living_is_refuted_at_once(accuser: str, dead: bool) -> None:
    held, victim = machine(), Membership(RECORDS[1], sign, verify, LAN.membership, random.Random(2), 0.0)
    charge = Accusation(NODE, EPOCH, accuser, dead)
    hear(held, charge)
    assert held.members[NODE].state in (State.SUSPECT, State.DEAD)
    [answer] = sent(victim.handle(ME, Gossip(News(accusations=(charge,))), 1.0), Gossip)
    assert answer.node == ME
    assert [each.event for each in held.handle(NODE, answer.message, 1.1) if isinstance(each, Changed)] == ["back"]
    assert held.members[NODE].state is State.ALIVE
    assert victim.health == 1


def test_an_absurd_accusation_leaves_room_to_refute() -> None:
    held = machine()
    assert refusals(hear(held, Accusation(NODE, EPOCH + DAY, WITNESS, dead=True))) == ["incarnation"]
    assert refusals(hear(held, Accusation(ME, 2**63, WITNESS, dead=True))) == []  # said already of this source
    assert held.refused["incarnation"] == 2
    hear(held, Accusation(NODE, EPOCH + DAY - HOUR, WITNESS, dead=True))
    assert held.members[NODE].state is State.DEAD
    hear(held, make_record(1, EPOCH + DAY - HOUR + 1))
    assert held.members[NODE].state is State.ALIVE


def test_a_thousand_accusations_are_one_refutation() -> None:
    held = machine()
    charges = [Accusation(ME, EPOCH + number, WITNESS, dead=True) for number in range(1000)]
    answers = hear(held, *charges)
    assert held.record.incarnation == EPOCH + 1000
    told = Send(LIAR, Gossip(News((held.record,))))
    assert [type(answer) for answer in answers] == [Returned] * 1000 + [Send]
    assert answers[-1] == told
    assert verify(held.record)
    assert hear(held, *charges) == [told], "refuted already: the record again, once"


def test_one_accuser_cannot_hurry_a_suspect() -> None:
    held = machine()
    for number in range(200):
        hear(held, Accusation(NODE, EPOCH, f"{number:032x}", dead=False))
    run_until(held, 9.0)
    assert held.members[NODE].state is State.SUSPECT
    assert held._docket._open[NODE].accusers <= {f"{0:032x}", ME}, "only who lives is a witness"


def test_higher_and_higher_accusations_do_not_keep_the_dead_in_the_view() -> None:
    held = machine()
    for second in range(60):
        hear(held, Accusation(NODE, EPOCH + second, WITNESS, dead=False), now=float(second))
        run_until(held, second + 1.0)
    assert held.members[NODE].state is State.DEAD
    assert NODE not in held.view


def run_until(held: Membership, end: float) -> list[Instruction]:
    done: list[Instruction] = []
    while held.wake <= end:
        done += held.tick(held.wake)
    return done


def test_a_crowd_of_made_up_members_is_bounded_and_the_dead_give_way() -> None:
    config = replace(LAN.membership, members_max=20)
    held = Membership(RECORDS[0], sign, verify, config, random.Random(1), 0.0)
    crowd = [make_record(index) for index in range(1, 100)]
    assert refusals(held.meet(News(tuple(crowd)), 0.0)) == ["full"]
    assert len(held.members) == 20
    dead = identify(crowd[3].key)
    hear(held, Accusation(dead, EPOCH, ME, dead=True))
    held.meet(News((crowd[50],)), 1.0)
    assert identify(crowd[50].key) in held.members
    assert dead not in held.members
    held.validate_state()


def test_rumours_about_strangers_are_bounded() -> None:
    hints = Hints(60.0)
    for number in range(5000):
        hints.add(Accusation(f"{number:032x}", 1, LIAR, dead=True), 0.0)
    assert len(hints._hints) == Hints.MOST
    held = machine()
    assert refusals(hear(held, Accusation("x" * 100_000, 1, LIAR, dead=True))) == ["malformed"]
    assert refusals(held.handle(WITNESS, Gossip(News(accusations=(Accusation(NODE, 1, "y" * 99, True),))), 1.0)) == [
        "malformed"
    ]


def test_our_key_in_another_process_is_outbid_once_a_second_and_reported() -> None:
    held = machine()
    double = make_record(0, EPOCH + 50, control="mem://double:1")
    assert refusals(hear(held, double, now=1.0)) == ["conflict"]
    assert held.record.incarnation == EPOCH + 51
    hear(held, make_record(0, EPOCH + 60, control="mem://double:1"), now=1.5)
    assert held.record.incarnation == EPOCH + 51
    hear(held, make_record(0, EPOCH + 60, control="mem://double:1"), now=2.5)
    assert held.record.incarnation == EPOCH + 61
    assert any("outbid" in line for line in held.story(ME))


# --- probes ------------------------------------------------------------------------------------------------------


def first_ping(held: Membership) -> tuple[str, Ping, float]:
    while True:
        now = held.wake
        for each in sent(held.tick(now), Ping):
            assert isinstance(each.message, Ping)
            return each.node, each.message, now


def pings(held: Membership, count: int) -> list[str]:
    """Whom it probes next, so many times; all live."""
    targets = list[str]()
    while len(targets) < count:
        now = held.wake
        for each in sent(held.tick(now), Ping):
            targets.append(each.node)
            held.heard(each.node, EPOCH + 1000, now + 0.01)
    return targets


def test_every_third_probe_looks_at_the_successor_in_the_view() -> None:
    held = machine()
    ring = sorted(IDS)
    successor = ring[(ring.index(ME) + 1) % len(ring)]
    targets = pings(held, 30)
    assert all(successor in targets[start : start + 3] for start in range(28))


@pytest.mark.parametrize("suspect", [node for node in IDS[:6] if node not in (ME, NODE)])
def test_an_accusation_makes_a_few_of_those_who_hear_it_look(suspect: str) -> None:
    """In a small swarm all of them, at one of their next two probes: so confirmations don't wait for the suspect's turn."""
    held = machine()
    held.handle(NODE, Gossip(News(accusations=(Accusation(suspect, EPOCH, NODE, False),))), 0.1)
    assert held.members[suspect].state is State.SUSPECT
    assert suspect in pings(held, 2)


def test_only_the_target_or_a_helper_answers_a_probe() -> None:
    held = machine()
    target, ping, now = first_ping(held)
    outsider = next(node for node in IDS[1:] if node != target)
    held.handle(outsider, Pong(ping.seq, Pulse(99, 1.0), News()), now)
    assert held.members[target].pulse == Pulse(0, 0.0)
    asked = sent(held.tick(now + 0.5), PingRequest)
    assert len({each.node for each in asked}) == 3
    assert target not in {each.node for each in asked}
    helper = asked[0].node
    held.handle(helper, Pong(ping.seq, Pulse(7, 0.5), News()), now + 0.6)
    assert held.members[target].pulse == Pulse(7, 0.5)
    run_until(held, now + 1.2)
    assert held.members[target].state is State.ALIVE


def test_a_silent_target_is_suspected_and_missing_nacks_are_our_own_fault() -> None:
    held = machine()
    target, ping, now = first_ping(held)
    asked = sent(held.tick(now + 0.5), PingRequest)
    held.handle(asked[0].node, Nack(ping.seq), now + 0.9)
    held.handle(target, Nack(ping.seq), now + 0.9) if target in {each.node for each in asked} else None
    done = run_until(held, now + 1.01)
    assert held.members[target].state is State.SUSPECT
    assert held.health == 2, "three were asked, one was heard"
    told = [each for each in sent(done, Gossip) if each.node == target]
    assert told[0].message.news.accusations == (Accusation(target, EPOCH, ME, False),)
    assert target in held.view and held.present == [m.id for m in held.view.members if m.id != target], "it gets no data"


def test_any_frame_since_the_ping_is_a_sign_of_life() -> None:
    held = machine()
    target, _, now = first_ping(held)
    held.heard(target, EPOCH - 1, now + 0.2)  # of an earlier life: none
    assert held.members[target].heard < now
    held.heard(target, EPOCH, now + 0.3, Pulse(3, 0.1))
    run_until(held, now + 1.01)
    assert held.members[target].state is State.ALIVE
    assert held.members[target].pulse == Pulse(3, 0.1)


def test_a_ping_for_somebody_else_is_not_answered() -> None:
    held = machine()
    assert held.handle(NODE, Ping(1, WITNESS, Pulse(0, 0.0), News()), 0.1) == []
    [pong] = held.handle(NODE, Ping(1, ME, Pulse(0, 0.0), News()), 0.1)
    assert isinstance(pong, Send)
    assert (pong.node, pong.message.seq) == (NODE, 1)


def test_a_relay_passes_the_answer_on_or_says_that_there_is_none() -> None:
    held = machine()
    [ping] = held.handle(NODE, PingRequest(5, WITNESS, News()), 0.1)
    assert ping.node == WITNESS
    assert held.handle(LIAR, Pong(ping.message.seq, Pulse(1, 1.0), News()), 0.2) == []
    [pong] = held.handle(WITNESS, Pong(ping.message.seq, Pulse(4, 2.0), News()), 0.2)
    assert (pong.node, pong.message.seq, pong.message.pulse) == (NODE, 5, Pulse(4, 2.0))
    held.handle(NODE, PingRequest(6, WITNESS, News()), 0.3)
    assert [each.node for each in sent(run_until(held, 0.71), Nack)] == [NODE]


@pytest.mark.parametrize("target", [ME, "f" * 32])
def test_what_cannot_be_relayed_is_nacked_at_once(target: str) -> None:
    [nack] = machine().handle(NODE, PingRequest(5, target, News()), 0.1)
    assert nack == Send(NODE, Nack(5))


def test_relays_are_bounded() -> None:
    held = machine()
    answers = [held.handle(LIAR, PingRequest(number, WITNESS, News()), 0.1) for number in range(100)]
    assert sum(isinstance(each.message, Nack) for [each] in answers if isinstance(each, Send)) == 36


def test_who_stalled_gives_no_verdict_before_it_read_its_mail() -> None:
    held = machine()
    hear(held, Accusation(NODE, EPOCH, WITNESS, dead=False), now=0.5)
    target, _, now = first_ping(held)
    held.tick(now + 60.0)
    assert all(info.state in LIVE for info in held.members.values())
    assert held.members[target].state is not State.SUSPECT or target == NODE
    hear(held, make_record(1, EPOCH + 1), now=now + 60.1)
    run_until(held, now + 61)
    assert held.members[NODE].state is State.ALIVE


# --- coming and going ----------------------------------------------------------------------------------------------


def test_a_joiner_pulls_from_three() -> None:
    held = Membership(RECORDS[0], sign, verify, LAN.membership, random.Random(1), 0.0)
    pulls = sent(held.meet(News(tuple(RECORDS[1:])), 0.0), Sync)
    assert len({each.node for each in pulls}) == 3
    assert all(each.message.reply for each in pulls)
    assert held.meet(News((make_record(9),)), 0.1)[0] == Changed(
        identify(make_record(9).key), None, State.ALIVE, "introduced by itself"
    )


def test_joining_is_visible_and_no_partner() -> None:
    held = machine()
    joiner = identify(make_record(9).key)
    [changed] = hear(held, make_record(9, phase=int(Phase.JOINING)))
    assert (changed.event, held.members[joiner].state, joiner in held.view) == ("joined", State.JOINING, False)
    before = held.view
    [changed] = hear(held, make_record(9, EPOCH + 1))
    assert (changed.event, held.members[joiner].state, joiner in held.view) == ("ready", State.ALIVE, True)
    assert held.view is not before
    assert len(held.view) == len(before) + 1


def test_leaving_is_told_to_several_at_once_and_ends_the_probes() -> None:
    held = machine()
    told = sent(held.leave(3.0), Gossip)
    assert len(told) == 4
    assert all(each.message.news.records == (held.record,) for each in told)
    assert ME not in held.view
    assert not sent(run_until(held, 60.0), Ping)
    assert held.handle(LIAR, Gossip(News(accusations=(Accusation(ME, held.record.incarnation, LIAR, True),))), 61.0) == []
    held.validate_state()


def test_the_story_says_what_happened_and_why() -> None:
    held = machine()
    held.closed(NODE, "reset by peer", 4.0)
    hear(held, make_record(1, EPOCH + 1), now=5.0)
    assert held.story(NODE)[1:] == [
        "4.000 alive -> suspect: connection lost: reset by peer",
        f"5.000 suspect -> alive: its word at incarnation {EPOCH + 1}",
    ]
    for number in range(400):
        hear(held, make_record(1, EPOCH + 2 + number, phase=number % 2))
    assert len(held.story(NODE)) <= 256


def test_push_pull_is_answered_once_asked() -> None:
    held = machine()
    [answer] = sent(held.handle(NODE, Sync(News(), reply=True), 1.0), Sync)
    assert (answer.node, answer.message.reply, len(answer.message.news.records)) == (NODE, False, 6)
    assert held.handle(NODE, answer.message, 1.0) == []
