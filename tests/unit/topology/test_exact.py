"""Base-(k+1): exact for every n, in as many rounds as published; and the other families that end exactly."""

import numpy as np
import pytest

from topology import canonical, make
from topology.families.base_k import base, factors
from topology.measure import product

LENGTHS = {
    1: {3: 3, 4: 2, 5: 5, 6: 4, 7: 5, 8: 3, 9: 7, 10: 6, 12: 5, 15: 7, 16: 4, 24: 6, 25: 9, 31: 9, 32: 5, 64: 6, 100: 11},
    2: {5: 3, 7: 4, 9: 2, 10: 4, 12: 3, 25: 6, 31: 7, 100: 8},
    3: {5: 3, 6: 2, 7: 3, 10: 4, 16: 2, 25: 5, 100: 6},
}


@pytest.mark.parametrize(("k", "n", "length"), [(k, n, length) for k, line in LENGTHS.items() for n, length in line.items()])
def test_cycle_lengths(k: int, n: int, length: int) -> None:
    assert base(n, k).length == length


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_product_of_a_cycle_is_the_average(k: int) -> None:
    topology = make(f"base:k={k}")
    for n in range(1, 101):
        members = canonical(n)
        period = topology.properties(n).period
        assert period is not None
        assert period <= 2 * np.log(n) / np.log(k + 1) + 2 + 1e-9
        mixings = [topology.whole(members, t) for t in range(period)]
        assert max(len(row) - 1 for mixing in mixings for row in mixing.rows) <= k
        np.testing.assert_allclose(product(mixings), 1 / n, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("n", "most", "expected"), [(1, 2, ()), (12, 4, (3, 4)), (16, 4, (4, 4)), (8, 4, (2, 4)), (6, 2, None), (36, 6, (6, 6))]
)
def test_factors_are_few(n: int, most: int, expected: tuple[int, ...] | None) -> None:
    assert factors(n, most) == expected


@pytest.mark.parametrize(
    ("spec", "n", "rounds"),
    [
        ("one-peer-exponential", 16, 4),
        ("exponential-matching", 16, 4),
        ("n-peer-exponential", 27, 3),
        ("hyper-hypercube:k=3", 48, 3),
        ("alternating-exponential-ring:ranks=4", 32, 6),
        ("complete", 7, 1),
    ],
)
def test_the_others_that_end_exactly(spec: str, n: int, rounds: int) -> None:
    properties = make(spec).properties(n)
    assert (properties.finite_time, properties.period) == (True, rounds)


@pytest.mark.parametrize("spec", ["one-peer-exponential", "exponential-matching", "n-peer-exponential"])
def test_exponentials_promise_nothing_for_other_numbers(spec: str) -> None:
    assert not make(spec).properties(12).finite_time
