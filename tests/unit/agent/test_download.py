"""The machine of a download: literal times, and any order of events."""

import random

from hypothesis import given
from hypothesis import strategies as st

from p2p.agent.download import BREAKS, LOOK, STRIKES, WINDOW, Download, Fetch

BUNDLES = [(first, 2) for first in range(0, 20, 2)]


def asked(fetches: list[Fetch], donor: str) -> list[int]:
    return [fetch.first for fetch in fetches if fetch.donor == donor]


def test_one_at_first_then_up_to_the_window() -> None:
    download = Download(BUNDLES, progress=10)
    download.add("a", 0.0)
    assert download.tick(0.0) == [Fetch("a", 0, 2)]
    at, opened = 0.0, [0]
    for expected in (2, 3, 4, 4):
        at += 0.1
        assert download.received("a", opened.pop(0), at)
        opened += asked(download.tick(at), "a")
        assert len(opened) == min(expected, WINDOW)
    assert (download.arrived, download.done) == (4, False)


def test_each_bundle_is_asked_of_one_donor() -> None:
    download = Download(BUNDLES, progress=10)
    for donor in "abc":
        download.add(donor, 0.0)
    now, opened = 0.0, [(f.donor, f.first) for f in download.tick(0.0)]
    for _ in BUNDLES:
        donor, first = opened.pop(0)
        now += 0.01
        assert download.wants(donor, first, 2)
        assert download.received(donor, first, now)
        opened += [(f.donor, f.first) for f in download.tick(now)]
    assert download.done and download.doubled == 0


def test_with_nothing_left_the_fast_fetch_what_the_slow_owe() -> None:
    download = Download(BUNDLES[:3], progress=10)
    download.add("a", 0.0)
    download.add("b", 0.0)
    assert len(download.tick(0.0)) == 2
    download.received("b", 2, 0.12)
    assert asked(download.tick(0.12), "b") == [4]
    download.received("b", 4, 0.22)
    assert download.tick(0.19) == []  # b takes 0.1 s: only what is owed for 0.2 s is worth fetching twice
    assert download.tick(0.22) == [Fetch("b", 0, 2)]
    download.received("b", 0, 0.32)
    assert download.done
    assert not download.received("a", 0, 0.5)
    assert download.doubled == 1


def test_silence_is_timed_by_the_pace_and_ends_at_the_progress_limit() -> None:
    download = Download(BUNDLES[:2], progress=10)
    download.add("a", 0.0)
    download.tick(0.0)
    assert download.tick(2.4) == []
    assert download.tick(2.5) == [Fetch("a", 0, 2)]
    download.received("a", 0, 3.0)  # it took half a second: four of these are silence
    assert download.tick(3.0) == [Fetch("a", 2, 2)]
    assert download.tick(3.0 + 4 * 0.5 - 0.01) == []
    assert download.tick(3.0 + 4 * 0.5) == [Fetch("a", 2, 2)]
    assert download.tick(12.9) == [Fetch("a", 2, 2)]
    assert "a" in download.sources
    download.tick(13.0)
    assert download.sources == {}


def test_a_spoilt_bundle_is_fetched_from_another_and_counted() -> None:
    download = Download(BUNDLES[:1], progress=10)
    download.add("a", 0.0)
    download.add("b", 0.0)
    assert download.tick(0.0) == [Fetch("a", 0, 2)]
    download.refused("a", 0)
    assert download.tick(0.1) == [Fetch("b", 0, 2)]
    assert download.spoilt == 1
    download.refused("b", 0)  # nobody is left who has not spoilt it
    assert download.tick(0.2) == []


def test_who_spoils_again_and_again_is_given_up() -> None:
    download = Download(BUNDLES, progress=10)
    for donor in "ab":
        download.add(donor, 0.0)
    for _ in range(STRIKES):
        (first,) = asked(download.tick(0.0), "a") or [min(download.sources["a"].open)]
        download.refused("a", first)
    assert [*download.sources] == ["b"]


def test_the_only_donor_that_spoils_is_given_up_at_once() -> None:
    download = Download(BUNDLES, progress=10)
    download.add("a", 0.0)
    download.tick(0.0)
    download.refused("a", 0)
    assert download.sources == {}


def test_a_broken_connection_asks_again_at_once_and_several_in_a_row_end_it() -> None:
    download = Download(BUNDLES, progress=10)
    download.add("a", 0.0)
    download.tick(0.0)
    for _ in range(BREAKS - 1):
        download.broke("a")
        assert download.tick(0.1) == [Fetch("a", 0, 2)]
    download.broke("a")
    download.broke("nobody")
    assert download.sources == {}


def test_what_was_not_asked_for_is_not_wanted() -> None:
    download = Download(BUNDLES, progress=10)
    download.add("a", 0.0)
    download.tick(0.0)
    assert [download.wants(*x) for x in (("a", 0, 2), ("a", 0, 3), ("a", 2, 2), ("b", 0, 2))] == [True, False, False, False]


def test_what_found_no_room_is_asked_for_at_the_next_tick() -> None:
    download = Download(BUNDLES, progress=10)
    download.add("a", 0.0)
    (fetch,) = download.tick(0.0)
    download.unsent(fetch)
    assert download.tick(0.1) == [fetch]


@given(st.integers(0, 2**32))
def test_whatever_happens_every_bundle_comes_while_one_donor_is_honest(seed: int) -> None:
    rng = random.Random(seed)
    download = Download(BUNDLES, progress=10)
    donors = ["good", "bad", "lossy", "dead"]
    for donor in donors:
        download.add(donor, 0.0)
    now, opened, times = 0.0, list[tuple[str, int]](), 0
    while not download.done:
        now += rng.random() * LOOK
        opened += [(f.donor, f.first) for f in download.tick(now)]
        rng.shuffle(opened)
        for donor, first in [opened.pop() for _ in range(min(len(opened), 3))]:
            if not download.wants(donor, first, 2):
                continue
            if donor == "good" or (donor == "lossy" and rng.random() < 0.5):
                download.received(donor, first, now)
            elif donor == "bad":
                download.refused(donor, first)
        times += 1
        assert times < 1000
        assert all(len(source.open) <= WINDOW for source in download.sources.values())
    assert "good" in download.sources
    assert download.arrived == len(BUNDLES)
