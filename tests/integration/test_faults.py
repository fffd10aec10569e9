"""Nodes come, go, stall and die as real processes, one seed of each; `scripts/faults.py` runs more and longer ones.

The bounds are for machines that are busy with something else: the figures are in docs/membership.md.
"""

import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from p2p.state.checkpoint import newest
from tests.integration.flock import LIVE, Flock, Halves, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and stops processes")
STARTED = 60.0
"""Seconds for processes to start."""
SKIPPED = 4.0
"""Seconds: no wait of a step for others is longer."""


@pytest.fixture
def flock(tmp_path: Path) -> Iterator[Flock]:
    with Flock(tmp_path) as found:
        yield found


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Flock]:
    """Its nodes are declared dead after 2 s."""
    with Flock(tmp_path, profile="test") as found:
        yield found


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_the_killed_are_buried_and_the_others_go_on(flock: Flock, algorithm: str) -> None:
    rng = random.Random(algorithm)
    flock.start(*range(5), ALGORITHM=algorithm)
    flock.wait_for_views(*range(5), seconds=STARTED)
    victims = rng.sample(range(5), 2)
    left = [index for index in range(5) if index not in victims]
    for victim in victims:
        goal = flock.step(victim) + rng.randrange(5, 30)
        until(lambda v=victim, g=goal: flock.step(v) >= g, "the step of its death", STARTED)
        flock.signal(signal.SIGKILL, victim)
    began, steps = time.time(), [flock.step(index) for index in left]
    held = [flock.state(index) for index in left]
    flock.wait_for_views(*left, seconds=40)
    until(lambda: all(flock.step(i) > step + 20 for i, step in zip(left, steps, strict=True)), "training goes on", 30)
    waits = [event["wait"] for index in left for event in flock.steps(index, began)]
    assert max(waits) < SKIPPED
    until(lambda: all(flock.news(left[0], _id(flock, v))[-1:] == ["dead"] for v in victims), "it is in the log", 10)
    for index, before in zip(left, held, strict=True):
        assert flock.state(index)["threads"] <= before["threads"]
    if algorithm == "async":
        until(lambda: all(flock.state(i)["dialled"] <= 2 * (3 - 1) for i in left), "no connection to the dead", 60)
    flock.stop()
    assert [flock.codes[index] for index in left] == [0] * 3


def _id(flock: Flock, index: int) -> str:
    return str(flock.state(index)["id"])


def test_who_is_stopped_for_five_seconds_is_not_dead(flock: Flock) -> None:
    flock.start(*range(4))
    flock.wait_for_views(*range(4), seconds=STARTED)
    until(lambda: flock.step(0) > 40, "some steps", STARTED)
    stopped = time.time()
    flock.signal(signal.SIGSTOP, 3)
    time.sleep(5)
    flock.signal(signal.SIGCONT, 3)
    resumed = time.time()
    until(lambda: any(e["partners"] for e in flock.steps(3, resumed)), "it exchanges again", 10)
    flock.wait_for_views(*range(4), seconds=20)
    for index in range(3):
        before = median(e["seconds"] for e in flock.steps(index, end=stopped))
        meanwhile = median(e["seconds"] for e in flock.steps(index, stopped + 1, resumed))
        assert meanwhile < 2 * before
        assert not {"dead", "left"} & set(flock.news(index, _id(flock, 3)))
    flock.stop()


def test_who_is_stopped_for_long_comes_back_as_a_joiner(quick: Flock) -> None:
    quick.start(*range(3))
    quick.wait_for_views(*range(3), seconds=STARTED)
    quick.signal(signal.SIGSTOP, 2)
    until(lambda: all(quick.news(i, _id(quick, 2))[-1:] == ["dead"] for i in (0, 1)), "it is dead", 30)
    goal = quick.step(2) + 200
    until(lambda: quick.step(0) > goal, "the others are far ahead", 60)
    quick.signal(signal.SIGCONT, 2)
    until(lambda: quick.step(2) > goal, "it is where they are", 20)
    quick.wait_for_views(*range(3), seconds=20)
    until(lambda: [event for event in quick.events(2) if event["event"] == "back"], "its return is in the log", 10)
    back = next(event for event in quick.events(2) if event["event"] == "back")
    assert back["outdated"]
    assert back["behind"] > 100
    until(lambda: quick.distance(0, 1, 2) < 0.1, "the models are near", 20)
    quick.stop()


@pytest.mark.skipif(bool(Halves.why_not()), reason=Halves.why_not())
def test_two_halves_train_on_and_become_one_again(tmp_path: Path) -> None:
    halves = ((0, 1), (2, 3))
    with Halves() as wire, Flock(tmp_path, profile="test", host=Halves.HOSTS[0], port=7000) as flock:
        flock.start(0, 1, inside=wire.inside(0))
        flock.start(2, 3, inside=wire.inside(1), host=Halves.HOSTS[1])
        flock.wait_for_views(*range(4), seconds=STARTED)
        until(lambda: flock.step(0) > 60, "some steps", STARTED)
        together = flock.apart(*halves)
        wire.cut()
        for half in halves:
            flock.wait_for_views(*half, seconds=60)
        steps = [flock.step(index) for index in range(4)]
        until(lambda: all(flock.step(i) > step + 60 for i, step in enumerate(steps)), "both halves train", 60)
        assert flock.apart(*halves) > 2 * together
        wire.heal()
        flock.wait_for_views(*range(4), seconds=60)
        until(lambda: flock.apart(*halves) <= together, f"one model again, as before: {together}", 30)
        assert not [e for index in range(4) for e in flock.events(index) if e["event"] == "back" and e["outdated"]]
        flock.stop()


def test_a_rolling_restart_founder_first(quick: Flock) -> None:
    quick.start(*range(3))
    quick.wait_for_views(*range(3), seconds=STARTED)
    ids = [_id(quick, index) for index in range(3)]
    for index in range(3):
        others = [other for other in range(3) if other != index]
        peer = quick.state(others[0])["address"]
        steps = [quick.step(other) for other in others]
        quick.signal(signal.SIGTERM, index)
        until(lambda i=index: i in quick.codes, "it has left", 20)
        assert quick.codes[index] == 0
        quick.start(index, peer=peer)
        quick.wait_for_views(*range(3), seconds=STARTED)
        assert all(quick.step(other) > step + 5 for other, step in zip(others, steps, strict=True))
    assert [_id(quick, index) for index in range(3)] == ids
    assert min(quick.step(index) for index in range(3)) > 60
    quick.stop()


def test_who_can_only_dial_out_learns_as_much_as_the_others(flock: Flock) -> None:
    flock.start(*range(3))
    flock.start(3, ADVERTISE="tcp://127.0.0.1:9", DIAL_ONLY="1")  # nobody listens there, as behind a firewall
    flock.wait_for_views(*range(4), seconds=STARTED)
    until(lambda: all(flock.state(i)["accuracy"] > 0.95 for i in range(4)), "all have learnt", 60)
    time.sleep(15)  # longer than suspicions last
    assert flock.views_right(*range(4))
    assert not {"suspect", "dead"} & set(flock.news(0, _id(flock, 3)))
    flock.stop()


def test_a_swarm_on_ipv6_alone(tmp_path: Path) -> None:
    with Flock(tmp_path, host="::1") as flock:
        flock.start(*range(4))
        flock.wait_for_views(*range(4), seconds=STARTED)
        until(lambda: all(flock.state(i)["accuracy"] > 0.9 for i in range(4)), "all have learnt", 60)
        assert all(flock.state(i)["address"].startswith("tcp://[::1]:") for i in range(4))
        flock.stop()


def test_an_exception_leaves_and_stays_what_it_is(flock: Flock) -> None:
    flock.start(0)
    flock.start(1, fails_at=30)
    until(lambda: 1 in flock.codes, "the user's exception", STARTED)
    assert flock.codes[1] == 1
    assert (flock.folder / "node-1.log").read_text().rstrip().endswith("RuntimeError: the user's own")
    until(lambda: flock.news(0, _id(flock, 1))[-1:] == ["left"], "the other was told", 10)
    flock.signal(signal.SIGINT, 0)
    until(lambda: 0 in flock.codes, "Ctrl-C", 10)
    assert flock.codes[0] == -signal.SIGINT
    assert flock.events(0)[-2]["event"] == "end"


@pytest.mark.parametrize(
    ("number", "pause", "code"),
    [(signal.SIGTERM, 0.05, 0), (signal.SIGTERM, 3.0, 128 + signal.SIGTERM), (signal.SIGINT, 3.0, -signal.SIGINT)],
    ids=["told-between-steps", "in-a-long-step", "ctrl-c"],
)
def test_who_is_told_to_end_writes_its_last_step(flock: Flock, number: signal.Signals, pause: float, code: int) -> None:
    flock.start(0, pause=pause, CHECKPOINT="1000000")
    until(lambda: flock.state(0), "a step", STARTED)
    flock.signal(number, 0)
    until(lambda: 0 in flock.codes, "it has left", 20)
    last = flock.steps(0)[-1]["step"]
    saved = newest(flock.folder)
    assert saved is not None and saved.step == last
    assert flock.codes[0] in (0, code), "where its long step had ended just then, the loop ended by itself"


def test_two_swarms_under_one_secret_stay_two(tmp_path: Path) -> None:
    """At an address that its swarm knew, another swarm is found: they refuse each other's news, and say so."""
    with Flock(tmp_path, profile="test") as flock:
        flock.start(0, 1)
        flock.wait_for_views(0, 1, seconds=STARTED)
        listen = f"tcp://127.0.0.1:{flock.port}"
        flock.signal(signal.SIGKILL, 0)
        until(lambda: 0 in flock.codes, "it is gone", 10)
        flock.start(0, peer="", LISTEN=listen, TOPOLOGY="ring", ALGORITHM="gossip")
        until(lambda: flock.step(0) > 5, "the other swarm trains", STARTED)
        log = flock.folder / "node-1.log"
        until(lambda: "trains something else" in log.read_text() + (flock.folder / "node-0.log").read_text(), "said so", 30)
        for index in (0, 1):
            members = flock.state(index)["members"]
            assert [n for n, how in members.items() if how in LIVE] == [_id(flock, index)]
        flock.stop()
