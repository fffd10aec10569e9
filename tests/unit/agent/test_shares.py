"""Rendezvous hashing, the greedy split against brute force, hysteresis."""

import heapq
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p.agent.shares import absorbed, differs, is_home, mix, scores, slowness

CHUNKS = np.arange(20_000)


def homes(slow: dict[str, float]) -> dict[str, np.ndarray]:
    return {node: is_home(node, CHUNKS, slow) for node in slow}


def test_every_chunk_has_one_home_and_shares_follow_speed() -> None:
    found = homes({"a": 1.0, "b": 1.0, "c": 4.0})
    assert (sum(found.values()) == 1).all()
    shares = [home.mean() for home in found.values()]
    assert shares == pytest.approx([4 / 9, 4 / 9, 1 / 9], abs=0.01)


def test_a_death_moves_only_the_chunks_of_the_dead() -> None:
    before, after = homes({"a": 1.0, "b": 1.0, "c": 2.0}), homes({"a": 1.0, "c": 2.0})
    assert (after["a"] >= before["a"]).all()
    assert (after["c"] >= before["c"]).all()
    assert (after["a"] | after["c"]).all()


def test_another_speed_moves_chunks_to_and_from_that_node_only() -> None:
    before, after = homes({"a": 1.0, "b": 1.0, "c": 1.0}), homes({"a": 1.0, "b": 1.0, "c": 2.0})
    assert (after["a"] >= before["a"]).all()
    assert (before["c"] >= after["c"]).all()


def test_the_hash_is_the_same_everywhere() -> None:
    assert [int(x) for x in mix(np.array([0, 1], dtype=np.uint64))] == [16294208416658607535, 10451216379200822465]
    assert scores("a", np.array([0, 7])).tolist() == scores("a", np.array([7, 0]))[::-1].tolist()


def greedy(units: int, queues: list[int], slow: list[float]) -> list[int]:
    """Each unit to whoever completes it first; the first of equals."""
    heap = [((queue + 1) * s, i) for i, (queue, s) in enumerate(zip(queues, slow, strict=True))]
    heapq.heapify(heap)
    given_to = [0] * len(queues)
    for _ in range(units):
        finish, i = heapq.heappop(heap)
        given_to[i] += 1
        heapq.heappush(heap, (finish + slow[i], i))
    return given_to


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1.0, 1.5, 2.0, 4.0])), min_size=1, max_size=5),
)
def test_a_node_takes_a_chunk_where_the_greedy_split_gives_it_one(units: int, nodes: list[tuple[int, float]]) -> None:
    queues, slow = [q for q, _ in nodes], [s for _, s in nodes]
    split = greedy(units, queues, slow)  # node 0 is the first of equals
    mine = absorbed((queues[0] + 1) * slow[0], queues[1:], slow[1:]) < units
    assert mine is (split[0] > 0)


@given(st.integers(1, 7), st.lists(st.sampled_from([1.0, 1.3, 2.0, 4.0]), min_size=2, max_size=3))
def test_the_greedy_split_ends_soonest(units: int, slow: list[float]) -> None:
    best = min(
        max(n * s for n, s in zip(split, slow, strict=True))
        for split in itertools.product(range(units + 1), repeat=len(slow))
        if sum(split) == units
    )
    assert max(n * s for n, s in zip(greedy(units, [0] * len(slow), slow), slow, strict=True)) == pytest.approx(best)


@pytest.mark.parametrize(
    ("paces", "expected"),
    [
        ({"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 1.0}),  # nothing measured yet
        ({"a": 0.01, "b": 0.0119}, {"a": 1.0, "b": 1.0}),
        ({"a": 0.01, "b": 0.012}, {"a": 1.0, "b": 1.2}),
        ({"a": 0.04, "b": 0.01, "c": 0.0}, {"a": 4.0, "b": 1.0, "c": 1.0}),
    ],
)
def test_slowness(paces: dict[str, float], expected: dict[str, float]) -> None:
    assert slowness(paces) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("old", "new", "plan"), [(1.0, 1.29, False), (1.0, 1.3, True), (4.0, 3.2, False), (4.0, 3.0, True), (4.0, 1.0, True)]
)
def test_hysteresis(old: float, new: float, plan: bool) -> None:
    assert differs({"a": 1.0, "b": old}, {"a": 1.0, "b": new}) is plan
