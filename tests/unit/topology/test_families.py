"""Every family at every n: what it declares is true of its matrices, and each node's row says the same as the whole."""

from dataclasses import replace

import numpy as np
import pytest

from topology import Properties, Topology, canonical, fitting, groups, make, names
from topology.measure import cut_off, product
from topology.registry import family

SPECS = (
    "alternating-exponential-ring", "alternating-exponential-ring:ranks=3", "base", "base:k=2", "base:k=3", "base:k=4",
    "binary-tree", "chain", "chain:weights=max-degree", "complete", "d-equistatic", "d-equistatic:draws=9,seed=3",
    "double-tree", "epidemic-local", "epidemic-local:fanout=7", "epidemic-oracle", "epidemic-oracle:fanout=3",
    "erdos-renyi", "erdos-renyi:p=0.3,seed=1", "exponential", "exponential-matching", "grid", "grid:rows=3",
    "hyper-hypercube", "hyper-hypercube:k=4", "hypercube", "n-peer-exponential", "n-peer-exponential:peers=4", "od-equidyn",
    "od-equidyn:eta=0.9", "one-peer-exponential", "ou-equidyn", "random-matching", "regular", "regular:degree=3",
    "regular:degree=8,seed=5", "ring", "ring:weights=lazy", "ring:weights=best-constant", "small-world",
    "small-world:k=6,beta=0.7", "star", "star:weights=uniform", "torus", "torus:rows=4", "two-level",
    "two-level:inside=base,between=complete,every=3", "u-equistatic",
)  # fmt: skip
SLOW = ("matcha", "matcha:graph=ring,budget=0.3", "adaptive")
"""Families that solve eigenvalue problems for each view."""
ROUNDS = 6
EXACT = 1e-12


def hearing(topology: Topology, members: tuple, round: int) -> np.ndarray:
    """W from what each node says that it hears."""
    out = np.zeros((len(members),) * 2)
    for i in range(len(members)):
        row = topology.row(members, round, i)
        out[i, i] = row.self_weight
        for j, w in row.ins:
            out[i, j] = w
    return out


def sending(topology: Topology, members: tuple, round: int) -> np.ndarray:
    """W from what each node says that it sends."""
    out = np.zeros((len(members),) * 2)
    for j in range(len(members)):
        row = topology.row(members, round, j)
        out[j, j] = row.self_weight
        for i, w in row.outs:
            out[i, j] = w
    return out


def keeps_promises(w: np.ndarray, promised: Properties) -> None:
    assert (w >= 0).all()
    np.testing.assert_allclose(w.sum(1), 1, rtol=0, atol=EXACT)
    if promised.mean_preserving or promised.doubly_stochastic:
        np.testing.assert_allclose(w.sum(0), 1, rtol=0, atol=EXACT)
    if promised.symmetric:
        np.testing.assert_allclose(w, w.T, rtol=0, atol=EXACT)
    if not promised.directed:
        np.testing.assert_array_equal(w != 0, w.T != 0)
    if promised.tree:
        assert np.count_nonzero(w - np.diag(np.diag(w))) == 2 * (len(w) - 1)
    if promised.regular:
        partners = (w - np.diag(np.diag(w))) != 0
        assert len(set(partners.sum(0))) == len(set(partners.sum(1))) == 1


def check(spec: str, n: int) -> None:
    topology = make(spec)
    if topology.refuses(n):
        return
    members, promised = canonical(n), topology.properties(n)
    rounds = min(promised.period or ROUNDS, ROUNDS)
    for t in range(rounds):
        w = topology.whole(members, t).matrix()
        keeps_promises(w, promised)
        np.testing.assert_array_equal(hearing(topology, members, t), w)
        np.testing.assert_allclose(sending(topology, members, t), w, rtol=0, atol=1e-15)
    horizon = promised.period or 64
    assert len(groups(n, (topology.whole(members, t) for t in range(horizon)))) == 1, "somebody is cut off"
    if promised.period is not None:
        assert topology.whole(members, 0) == topology.whole(members, promised.period)
    if promised.finite_time:
        assert promised.period is not None
        done = product([topology.whole(members, t) for t in range(promised.period)])
        np.testing.assert_allclose(done, 1 / n, rtol=0, atol=EXACT)
    if promised.smallest_eigenvalue is not None:
        assert np.linalg.eigvalsh(topology.whole(members, 0).matrix())[0] > promised.smallest_eigenvalue - 1e-9


@pytest.mark.parametrize("spec", SPECS)
def test_a_family_is_what_it_declares(spec: str) -> None:
    for n in range(1, 65):
        check(spec, n)


@pytest.mark.parametrize("spec", SLOW)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 12, 15])
def test_a_costly_family_is_what_it_declares(spec: str, n: int) -> None:
    check(spec, n)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SLOW)
def test_a_costly_family_is_what_it_declares_at_every_n(spec: str) -> None:
    for n in range(1, 65):
        check(spec, n)


def test_no_family_is_left_out() -> None:
    built_in = {name for name in names() if family(name).__module__.startswith("topology.")}
    assert {spec.partition(":")[0] for spec in (*SPECS, *SLOW)} == built_in - {"file"}


@pytest.mark.parametrize("spec", ["two-level:inside=ring", "two-level:between=complete,every=3", "adaptive"])
@pytest.mark.parametrize(("n", "sites"), [(16, 3), (9, 4), (7, 7), (20, 2)])
def test_families_that_look_at_sites(spec: str, n: int, sites: int) -> None:
    topology, members = make(spec), canonical(n, sites)
    promised = topology.properties(n)
    for t in range(9):
        w = hearing(topology, members, t)
        keeps_promises(w, promised)
        np.testing.assert_allclose(sending(topology, members, t), w, rtol=0, atol=1e-15)
    assert len(groups(n, (topology.whole(members, t) for t in range(64)))) == 1


@pytest.mark.parametrize("spec", [*SPECS, *SLOW])
def test_members_that_only_dial_out_never_meet(spec: str) -> None:
    topology, n = make(spec), 8
    if topology.refuses(n):
        n = next(m for m in range(n, 20) if not topology.refuses(m))
    members = tuple(replace(m, dial_only=i in (1, 2, 5)) for i, m in enumerate(canonical(n)))
    chosen, _ = fitting(topology, members)
    promised = chosen.properties(n)
    for t in range(ROUNDS):
        w = hearing(chosen, members, t)
        np.testing.assert_allclose(sending(chosen, members, t), w, rtol=0, atol=1e-15)
        np.testing.assert_allclose(w.sum(1), 1, rtol=0, atol=EXACT)
        if promised.mean_preserving:
            np.testing.assert_allclose(w.sum(0), 1, rtol=0, atol=EXACT)
        assert not w[np.ix_((1, 2, 5), (1, 2, 5))][~np.eye(3, dtype=bool)].any()
    assert not cut_off(chosen, members)


REFUSED = [
    ("hypercube", 6, "hypercube takes powers of two, not 6; 4 or 8 would do"),
    ("hyper-hypercube:k=2", 10, "hyper-hypercube:k=2 takes numbers without a prime factor above 3, not 10; 9 or 12 would do"),
    ("grid:rows=3", 7, "grid:rows=3 takes multiples of 3, not 7; 6 or 9 would do"),
    ("regular:degree=3", 7, "regular:degree=3 takes even numbers above 3, 1 and 2, not 7; 6 or 8 would do"),
    ("regular", 4, "regular:degree=4 takes numbers above 4, 1 and 2, not 4; 2 or 5 would do"),
    (
        "alternating-exponential-ring:ranks=3",
        10,
        "alternating-exponential-ring:ranks=3 takes 3 times powers of two, not 10; 6 or 12 would do",
    ),
]


@pytest.mark.parametrize(("spec", "n", "message"), REFUSED)
def test_a_refusal_names_the_nearest_numbers(spec: str, n: int, message: str) -> None:
    assert make(spec).refuses(n) == message


ROUND = [
    ("one-peer-exponential", 6, 1, 0, {0: 1 / 2, 4: 1 / 2}),
    ("one-peer-exponential", 6, 4, 0, {0: 1 / 2, 4: 1 / 2}),
    ("exponential", 6, 0, 1, {1: 1 / 4, 0: 1 / 4, 5: 1 / 4, 3: 1 / 4}),
    ("n-peer-exponential:peers=2", 9, 1, 0, {0: 1 / 3, 6: 1 / 3, 3: 1 / 3}),
    ("exponential-matching", 6, 2, 1, {1: 1 / 2, 5: 1 / 2}),
    ("exponential-matching", 6, 2, 2, {2: 1}),
    ("torus", 12, 0, 0, {0: 1 / 5, 1: 1 / 5, 3: 1 / 5, 4: 1 / 5, 8: 1 / 5}),
    ("grid", 6, 0, 0, {0: 1 - 1 / 4 - 1 / 3, 1: 1 / 4, 3: 1 / 3}),
    ("star", 5, 0, 2, {2: 4 / 5, 0: 1 / 5}),
    ("binary-tree", 7, 0, 1, {1: 1 / 4, 0: 1 / 4, 3: 1 / 4, 4: 1 / 4}),
    ("double-tree", 7, 1, 5, {5: 1 / 4, 6: 1 / 4, 3: 1 / 4, 2: 1 / 4}),
    ("alternating-exponential-ring:ranks=2", 8, 0, 0, {0: 1 / 4, 1: 1 / 4, 2: 1 / 4, 3: 1 / 4}),
    ("alternating-exponential-ring:ranks=2", 8, 0, 4, {4: 1 / 2, 5: 1 / 2}),
    ("alternating-exponential-ring:ranks=2", 8, 1, 4, {4: 1 / 4, 5: 1 / 4, 6: 1 / 4, 7: 1 / 4}),
]


@pytest.mark.parametrize(("spec", "n", "round", "node", "row"), ROUND)
def test_one_row_by_hand(spec: str, n: int, round: int, node: int, row: dict[int, float]) -> None:
    assert make(spec).whole(canonical(n), round).rows[node] == pytest.approx(row, abs=1e-15)


def test_equidyn_halves_the_squared_error_in_the_mean() -> None:
    """E|Wx|^2 = (1 - c)^2 + c^2 - 2c(1 - c)/(n - 1) on the complement of 1, c = eta (n - 1)/n, in the mean over draws."""
    n, eta, rng = 12, 0.5, np.random.default_rng(0)
    members, topology = canonical(n), make("od-equidyn")
    x = rng.normal(size=n)
    x -= x.mean()
    c = eta * (n - 1) / n
    expected = (1 - c) ** 2 + c**2 - 2 * c * (1 - c) / (n - 1)
    ratios = [np.sum((topology.whole(members, t).matrix() @ x) ** 2) / np.sum(x**2) for t in range(2000)]
    assert np.mean(ratios) == pytest.approx(expected, rel=0.03)


def test_epidemic_targets_are_distinct_others_and_uniform() -> None:
    topology, members = make("epidemic-local:fanout=3"), canonical(8)
    counts = np.zeros((8, 8))
    for t in range(400):
        for i in range(8):
            outs = [j for j, _ in topology.row(members, t, i).outs]
            assert len(set(outs)) == 3
            assert i not in outs
            counts[i, outs] += 1
    off = counts[~np.eye(8, dtype=bool)] / 400
    assert off.mean() == pytest.approx(3 / 7)
    assert abs(off - 3 / 7).max() < 0.11


def test_random_families_depend_on_seed_and_round_alone() -> None:
    members = canonical(12)
    for name in ("random-matching", "epidemic-oracle", "regular", "small-world", "erdos-renyi", "ou-equidyn"):
        assert make(name).whole(members, 3) == make(name).whole(members, 3)
        assert make(name).whole(members, 3) != make(f"{name}:seed=1").whole(members, 3)
    assert make("random-matching").whole(members, 3) != make("random-matching").whole(members, 4)
