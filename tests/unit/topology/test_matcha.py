"""MATCHA's three steps against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology import TopologyError, canonical, make
from topology.families.matcha import Matcha, _laplacian, activation, best_weight, colour, project


@given(
    st.integers(2, 9).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.sampled_from([(i, j) for j in range(n) for i in range(j)])))
    )
)
def test_colours_are_matchings(graph: tuple[int, set[tuple[int, int]]]) -> None:
    n, edges = graph
    matchings = colour(n, sorted(edges))
    assert sorted(edge for matching in matchings for edge in matching) == sorted(edges)
    for matching in matchings:
        ends = [end for edge in matching for end in edge]
        assert len(ends) == len(set(ends))
    degree = max((sum(i in edge for edge in edges) for i in range(n)), default=0)
    assert len(matchings) <= max(2 * degree - 1, 0)


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=6), st.floats(0.1, 0.9))
def test_the_projection_is_the_nearest_point(values: list[float], share: float) -> None:
    point, total = np.array(values), share * len(values)
    nearest = project(point, total)
    assert ((nearest >= 0) & (nearest <= 1)).all()
    assert nearest.sum() == pytest.approx(total, abs=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = project(rng.uniform(-1, 2, len(values)), total)
        assert np.linalg.norm(nearest - point) <= np.linalg.norm(other - point) + 1e-9


BARBELL = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)]
"""Two triangles and the one edge between them."""


def test_the_edge_that_matters_is_kept() -> None:
    matchings = colour(6, BARBELL)
    laplacians = [_laplacian(6, matching) for matching in matchings]
    p = activation(laplacians, 0.5)
    bridge = next(k for k, matching in enumerate(matchings) if (2, 3) in matching)
    assert p[bridge] == max(p)
    assert sum(p) <= 0.5 * len(matchings) + 0.01

    def connectivity(q: np.ndarray) -> float:
        return float(np.linalg.eigvalsh(np.tensordot(q, np.stack(laplacians), 1))[1])

    rng = np.random.default_rng(1)
    best = max(connectivity(project(rng.uniform(-1, 2, len(p)), 0.5 * len(p))) for _ in range(2000))
    assert connectivity(np.array(p)) > best - 0.01


def test_the_weight_is_the_best_of_a_grid() -> None:
    laplacians = [_laplacian(6, matching) for matching in colour(6, BARBELL)]
    p = activation(laplacians, 0.5)
    weight = best_weight(laplacians, p, 1.0)

    def expected_error(a: float) -> float:
        rng = np.random.default_rng(2)
        draws = (rng.random((4000, len(p))) < np.array(p)).astype(float)
        mixings = np.eye(6) - a * np.einsum("dk,kij->dij", draws, np.stack(laplacians))
        return float(np.linalg.norm(np.einsum("dki,dkj->ij", mixings, mixings) / len(draws) - 1 / 6, 2))

    grid = np.linspace(0.05, 1, 39)
    assert abs(weight - grid[np.argmin([expected_error(a) for a in grid])]) < 0.06


def test_the_budget_is_the_share_of_edges_used() -> None:
    topology, members = make("matcha:graph=torus,budget=0.3"), canonical(12)
    used = [sum(len(row) - 1 for row in topology.whole(members, t).rows) / 2 for t in range(400)]
    assert np.mean(used) / 24 == pytest.approx(0.3, abs=0.05)


def test_what_matcha_refuses() -> None:
    with pytest.raises(TopologyError, match="a static symmetric graph, which 'one-peer-exponential' isn't"):
        make("matcha:graph=one-peer-exponential").row(canonical(5), 0, 0)
    assert make("matcha:graph=hypercube").refuses(6) == make("hypercube").refuses(6)
    assert "at most 2048 members" in (Matcha().refuses(5000) or "")
    with pytest.raises(TopologyError, match="budget is a share"):
        make("matcha:budget=0")
