"""Bundles: every block once, in order, within a run, a length and a number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p.agent.bundles import BLOCKS, bundles


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        ([], 10, []),
        ([(0, 4)] * 5, 8, [(0, 2), (2, 2), (4, 1)]),
        ([(0, 4), (1, 4), (1, 4)], 100, [(0, 1), (1, 2)]),
        ([(0, 50), (0, 50)], 10, [(0, 1), (1, 1)]),  # a block longer than the limit travels alone
        ([(0, 1)] * 65, 100, [(0, 64), (64, 1)]),
    ],
)
def test_examples(sizes: list[tuple[int, int]], limit: int, expected: list[tuple[int, int]]) -> None:
    assert list(bundles(sizes, limit)) == expected


def test_some_of_them_never_over_a_gap() -> None:
    assert list(bundles([(0, 4)] * 6, 8, [0, 1, 2, 4, 5])) == [(0, 2), (2, 1), (4, 2)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), max_size=200), st.integers(1, 100))
def test_every_block_once_in_order_and_within_bounds(sizes: list[tuple[int, int]], limit: int) -> None:
    sizes = sorted(sizes, key=lambda size: size[0])
    found = list(bundles(sizes, limit))
    assert [i for first, count in found for i in range(first, first + count)] == list(range(len(sizes)))
    for first, count in found:
        parts = sizes[first : first + count]
        assert len({run for run, _ in parts}) == 1
        assert count <= BLOCKS
        assert count == 1 or sum(size for _, size in parts) <= limit
