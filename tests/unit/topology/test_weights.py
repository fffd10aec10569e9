"""Weight rules on random graphs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology import Member, Mixing, Topology, TopologyError
from topology.mixing import Row
from topology.weights import RULES, best_constant, lazy, max_degree, metropolis, rule, uniform


@st.composite
def graphs(draw: st.DrawFn, most: int = 9) -> tuple[int, list[tuple[int, int]]]:
    n = draw(st.integers(1, most))
    pairs = [(i, j) for i in range(n) for j in range(i)]
    return n, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


@given(graphs(), st.sampled_from([metropolis, lazy, max_degree]))
def test_symmetric_rules_are_doubly_stochastic_on_any_graph(graph: tuple[int, list[tuple[int, int]]], rule: object) -> None:
    n, edges = graph
    mixing = Mixing.undirected(n, edges, rule).validate()  # type: ignore[arg-type]
    assert mixing.symmetric
    assert mixing.doubly_stochastic
    assert (mixing.matrix() >= 0).all()


@given(graphs())
def test_lazy_has_no_negative_eigenvalue(graph: tuple[int, list[tuple[int, int]]]) -> None:
    w = Mixing.undirected(*graph, lazy).matrix()
    assert np.linalg.eigvalsh(w)[0] > -1e-12
    np.testing.assert_allclose(w, (Mixing.undirected(*graph, metropolis).matrix() + np.eye(graph[0])) / 2, atol=1e-15)


@given(graphs())
def test_push_keeps_the_mass(graph: tuple[int, list[tuple[int, int]]]) -> None:
    mixing = Mixing.push(*graph).validate()
    np.testing.assert_allclose(mixing.matrix().sum(0), 1, atol=1e-15)


def test_uniform_leans_towards_high_degrees() -> None:
    w = Mixing.undirected(4, [(0, 1), (0, 2), (0, 3)], uniform).matrix()
    values = np.linalg.matrix_power(w, 200)[2]
    np.testing.assert_allclose(values, np.array([4, 2, 2, 2]) / 10)


def test_best_constant_beats_every_other_constant() -> None:
    n, edges = 8, [(i, (i + 1) % 8) for i in range(8)] + [(0, 3)]
    best = np.linalg.norm(Mixing.undirected(n, edges, best_constant).matrix() - 1 / n, 2)
    weight = Mixing.undirected(n, edges, best_constant).rows[0][1]
    for other in (0.9 * weight, 1.1 * weight):
        w = Mixing.undirected(n, edges, lambda near, other=other: lambda i, j: other).matrix()  # type: ignore[misc]
        assert np.linalg.norm(w - 1 / n, 2) > best + 1e-6


def test_rules_by_name() -> None:
    assert rule("lazy") is lazy
    assert len(RULES) == 5
    with pytest.raises(TopologyError, match="there is no weight rule 'metro'"):
        rule("metro")


class Random(Topology):
    """A doubly stochastic directed mixing: permutations in convex combination."""

    def __init__(self, mixing: Mixing) -> None:
        self.given = mixing

    def mixing(self, members: object, round: int) -> Mixing:
        return self.given


@st.composite
def views(draw: st.DrawFn) -> tuple[Mixing, tuple[Member, ...]]:
    n = draw(st.integers(1, 8))
    shuffles = [draw(st.permutations(range(n))) for _ in range(3)]
    rows: list[dict[int, float]] = [{} for _ in range(n)]
    for shuffle, share in zip(shuffles, (0.5, 0.25, 0.25), strict=True):
        for i, j in enumerate(shuffle):
            rows[i][j] = rows[i].get(j, 0) + share
    return Mixing(rows), tuple(Member(f"m{i}", dial_only=draw(st.booleans())) for i in range(n))


@given(views())
def test_without_pairs_of_dialers_the_mean_stays(view: tuple[Mixing, tuple[Member, ...]]) -> None:
    mixing, members = view
    topology = Random(mixing)
    w = topology.whole(members, 0).matrix()
    np.testing.assert_allclose(w.sum(0), 1, atol=1e-12)
    np.testing.assert_allclose(w.sum(1), 1, atol=1e-12)
    dialers = [i for i, m in enumerate(members) if m.dial_only]
    if len(dialers) > 1:
        assert not w[np.ix_(dialers, dialers)][~np.eye(len(dialers), dtype=bool)].any()
    else:
        np.testing.assert_array_equal(w, mixing.matrix())


@given(graphs(6), st.data())
def test_without_pairs_of_dialers_a_push_keeps_its_mass(graph: tuple[int, list[tuple[int, int]]], data: st.DataObject) -> None:
    topology = Random(Mixing.push(*graph))
    members = tuple(Member(f"m{i}", dial_only=data.draw(st.booleans())) for i in range(graph[0]))
    w = topology.whole(members, 0).matrix()
    np.testing.assert_allclose(w.sum(0), 1, atol=1e-12)
    assert topology.row(members, 0, 0).outs == Mixing(topology.whole(members, 0).rows).row(0).outs
    assert isinstance(topology.row(members, 0, 0), Row)
