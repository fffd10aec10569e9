"""The order of samples: a permutation, computed piece by piece, the same everywhere, without a pattern."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p.permutation import Permutation

EXPECTED = [
    [9, 0, 10, 1, 6, 5, 3, 8, 4, 2, 7, 11],
    [0, 7, 3, 4, 10, 11, 9, 1, 8, 5, 6, 2],
]


@given(length=st.integers(1, 300), seed=st.integers(-5, 1 << 70), epoch=st.integers(0, 1000), size=st.integers(1, 50))
def test_pieces_make_a_permutation(length: int, seed: int, epoch: int, size: int) -> None:
    order = Permutation(length, seed, epoch)
    pieces = [order[at : at + size] for at in range(0, length, size)]
    assert sorted(np.concatenate(pieces).tolist()) == list(range(length))
    assert all(piece.dtype == np.int64 for piece in pieces)


def test_the_order_is_part_of_the_contract() -> None:
    assert Permutation(12, 7, 0)[:].tolist() == EXPECTED[0]
    assert Permutation(12, 7, 1)[:].tolist() == EXPECTED[1]


def test_all_orders_of_four_are_equally_likely() -> None:
    found = Counter(tuple(Permutation(4, seed, epoch)[:].tolist()) for seed in range(60) for epoch in range(40))
    assert len(found) == 24
    assert sum((count - 100) ** 2 / 100 for count in found.values()) < 49.7  # chi square, 23 degrees of freedom, 0.1 %


def test_every_sample_comes_everywhere() -> None:
    counts = np.zeros((30, 30))
    for epoch in range(3000):
        counts[np.arange(30), Permutation(30, 1, epoch)[:]] += 1
    assert ((counts - 100) ** 2 / 100).sum() < 975  # 841 degrees of freedom, 0.1 %


def test_neighbours_are_torn_apart() -> None:
    order = Permutation(10_000, 0, 0)[:]
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.04
    assert np.count_nonzero(order == np.arange(10_000)) < 8  # a random one has 1 fixed point on average


def test_a_piece_costs_the_piece() -> None:
    piece = Permutation(10**12, 3, 2)[10**11 : 10**11 + 100]
    assert len(set(piece.tolist())) == 100
    assert piece.max() > 10**10


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_smallest(length: int) -> None:
    assert sorted(Permutation(length, 0, 0)[:].tolist()) == list(range(length))
