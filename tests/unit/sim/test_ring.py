"""The time of a ring all-reduce."""

from __future__ import annotations

import math

import numpy as np
import pytest

from p2p.sim.ring import Times, finish


def alike(n: int, value: float) -> Times:
    return np.full(n, value)


@pytest.mark.parametrize(
    ("n", "nbytes", "bandwidth", "latency", "seconds"),
    [
        (2, 100.0, 100.0, 0.0, 1.0),  # 2 (n - 1) / n of the model
        (4, 100.0, 100.0, 0.0, 1.5),
        (4, 100.0, 100.0, 0.1, 2.1),  # and 2 (n - 1) latencies
        (4, 100.0, math.inf, 0.1, 0.6),
    ],
)
def test_equal_nodes(n: int, nbytes: float, bandwidth: float, latency: float, seconds: float) -> None:
    times = finish([alike(n, 0.0)], nbytes, alike(n, bandwidth), alike(n, latency))
    assert times == pytest.approx(alike(n, seconds))


def test_nobody_has_the_sum_before_the_last_has_come_and_it_went_round() -> None:
    late = finish([np.array([0.0, 7.0, 0.0, 0.0])], 100.0, alike(4, 100.0), alike(4, 0.0))
    assert min(late) >= 7.0 + 3 * 0.25
    assert max(late) == pytest.approx(7.0 + 1.5)


def test_one_thin_edge_sets_the_pace() -> None:
    bandwidth = np.array([100.0, 10.0, 100.0, 100.0])
    times = finish([alike(4, 0.0)], 100.0, bandwidth, alike(4, 0.0))
    assert 6 * 2.5 <= max(times) <= 6 * 2.5 + 3 * 0.25


def test_buckets_follow_one_another_and_begin_when_they_are_ready() -> None:
    one = finish([alike(4, 0.0)], 100.0, alike(4, 100.0), alike(4, 0.0))
    two = finish([alike(4, 0.0), alike(4, 0.0)], 50.0, alike(4, 100.0), alike(4, 0.0))
    hidden = finish([alike(4, -1.0), alike(4, 0.0)], 50.0, alike(4, 100.0), alike(4, 0.0))
    assert two == pytest.approx(one)
    assert hidden == pytest.approx(alike(4, 0.75))


def by_events(ready: Times, chunk: float, bandwidth: Times, latency: Times) -> Times:
    """The same for one bucket, one send after the other, as a node would do it."""
    n = len(ready)
    arrived = [[float(ready[i])] for i in range(n)]  # when node i may make its k-th send
    sent = [-math.inf] * n
    for k in range(2 * (n - 1)):
        ends = [max(arrived[i][k], sent[i]) + chunk / bandwidth[i] for i in range(n)]
        for i in range(n):
            sent[i] = ends[i]
            came = ends[i - 1] + latency[i - 1]
            arrived[i].append(max(came, float(ready[i])) if k < n - 1 else came)
    return np.array([times[-1] for times in arrived])


@pytest.mark.parametrize("seed", range(5))
def test_any_ring_as_by_single_sends(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    ready, bandwidth, latency = rng.uniform(0, 3, n), rng.uniform(1, 50, n), rng.uniform(0, 1, n)
    assert finish([ready], 20.0 * n, bandwidth, latency) == pytest.approx(by_events(ready, 20.0, bandwidth, latency))
