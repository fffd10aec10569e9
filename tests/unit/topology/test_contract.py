"""The contract: a mixing, a row, the base's promises to those who only write `mixing`."""

from collections.abc import Sequence

import numpy as np
import pytest

from topology import FALLBACK, Member, Mixing, Topology, TopologyError, TopologyRefused, canonical, fitting, make
from topology.measure import is_tree
from topology.mixing import Row


def test_rows_and_columns_of_a_directed_mixing() -> None:
    mixing = Mixing.directed(3, {(0, 1): 0.25, (1, 2): 0.5, (2, 0): 0.125})
    expected = np.array([[0.75, 0.25, 0], [0, 0.5, 0.5], [0.125, 0, 0.875]])
    np.testing.assert_array_equal(mixing.matrix(), expected)
    assert mixing.row(0) == Row(0.75, outs=((2, 0.125),), ins=((1, 0.25),))


def test_undirected_edges_get_metropolis_weights() -> None:
    star = Mixing.undirected(4, [(0, 1), (0, 2), (3, 0), (0, 0), (1, 0)])
    np.testing.assert_allclose(star.matrix()[0], [0.25, 0.25, 0.25, 0.25], atol=1e-15)
    assert star.row(1) == Row(0.75, outs=((0, 0.25),), ins=((0, 0.25),))


def test_push_splits_a_sender_over_its_receivers() -> None:
    push = Mixing.push(3, [(1, 0), (2, 0), (0, 1)])
    np.testing.assert_allclose(push.matrix(), [[1 / 3, 1 / 2, 0], [1 / 3, 1 / 2, 0], [1 / 3, 0, 1]])
    assert push.validate().mean_preserving
    assert not push.doubly_stochastic


class Pair(Topology):
    """In even rounds 0 hears 1, in odd rounds 1 hears 0."""

    calls = 0

    def mixing(self, members: Sequence[Member], round: int) -> Mixing:
        type(self).calls += 1
        return Mixing.directed(len(members), {(round % 2, 1 - round % 2): 0.5} if len(members) > 1 else {})


def test_a_users_topology_gets_rows_from_its_mixing_made_once_per_round() -> None:
    pair, members = Pair(), canonical(3)
    Pair.calls = 0
    assert pair.row(members, 0, 0) == Row(0.5, outs=(), ins=((1, 0.5),))
    assert pair.row(tuple(members), 0, 1) == Row(1.0, outs=((0, 0.5),), ins=())
    assert pair.row(members, 0, 2) == Row(1.0, (), ())
    assert Pair.calls == 1
    assert pair.row(members, 1, 0) == Row(1.0, outs=((1, 0.5),), ins=())
    assert Pair.calls == 2


def test_undeclared_properties_are_measured() -> None:
    properties = Pair().properties(2)
    assert (properties.period, properties.static, properties.directed) == (2, False, True)
    assert not properties.mean_preserving
    assert not properties.finite_time


@pytest.mark.parametrize(
    ("edges", "tree"),
    [
        ([(0, 1), (1, 2), (1, 3)], True),
        ([(0, 1), (1, 2), (2, 3), (3, 0)], False),
        ([(0, 1), (1, 2), (2, 0)], False),  # as many edges as a tree has, but 3 is alone
    ],
)
def test_a_tree_is_told_from_what_is_none(edges: list[tuple[int, int]], tree: bool) -> None:
    assert is_tree(Mixing.undirected(4, edges)) is tree
    assert not is_tree(Mixing.directed(4, dict.fromkeys(edges, 0.25)))


DIALERS = tuple(Member(f"{i}", dial_only=i in (0, 1, 3, 4)) for i in range(6))


@pytest.mark.parametrize("spec", ["ring", "complete", "exponential", "one-peer-exponential"])
@pytest.mark.parametrize("round", [0, 1, 2])
def test_dial_only_members_never_meet_and_the_mean_stays(spec: str, round: int) -> None:
    topology = make(spec)
    mixing = topology.whole(DIALERS, round)
    w = mixing.matrix()
    blocked = [i for i, m in enumerate(DIALERS) if m.dial_only]
    assert (w[np.ix_(blocked, blocked)] == np.diag(np.diag(w)[blocked])).all()
    np.testing.assert_allclose(w, w.T, atol=1e-15)
    np.testing.assert_allclose(w.sum(0), 1, atol=1e-15)
    assert [topology.row(DIALERS, round, i) for i in range(6)] == [mixing.row(i) for i in range(6)]


def test_dial_only_members_of_a_users_own_topology_take_their_weight_back() -> None:
    members = (Member("a", dial_only=True), Member("b", dial_only=True), Member("c"))
    assert Pair().whole(members, 0) == Mixing.directed(3, {})


def test_one_dial_only_member_changes_nothing() -> None:
    members = (Member("a", dial_only=True), Member("b"), Member("c"))
    assert make("exponential").whole(members, 0) == make("exponential").whole(canonical(3), 0)


def test_the_fallback_takes_over_where_dial_only_members_cut_the_graph() -> None:
    chosen, reason = fitting(make("ring"), DIALERS)
    assert chosen is FALLBACK
    assert reason == "members that can only dial out never meet each other, and cut off 1, 2, 3"
    w = FALLBACK.whole(DIALERS, 0).matrix()
    assert np.linalg.norm(w - 1 / 6, 2) < 1
    assert (w[np.ix_([0, 1, 3, 4], [0, 1, 3, 4])] == np.diag(np.diag(w)[[0, 1, 3, 4]])).all()


def test_the_fallback_is_the_lazy_metropolis_ring() -> None:
    np.testing.assert_allclose(FALLBACK.whole(canonical(4), 0).matrix()[0], [2 / 3, 1 / 6, 0, 1 / 6])
    assert fitting(make("ring"), canonical(4)) == (make("ring"), None)


class Even(Pair):
    def refuses(self, n: int) -> str | None:
        return f"even numbers only, not {n}; {n + 1} would do" if n % 2 else None


def test_a_refused_number_falls_back_and_says_why() -> None:
    with pytest.raises(TopologyRefused, match="4 would do"):
        Even().row(canonical(3), 0, 0)
    assert fitting(Even(), canonical(3)) == (FALLBACK, "even numbers only, not 3; 4 would do")


class Broken(Pair):
    def mixing(self, members: Sequence[Member], round: int) -> Mixing:
        return Mixing.directed(len(members), {(0, 1): 2.0})


def test_a_topology_that_is_wrong_for_a_view_falls_back_too() -> None:
    chosen, reason = fitting(Broken(), canonical(3))
    assert chosen is FALLBACK
    assert "its self weight is -1" in (reason or "")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{0: 0.5, 1: 0.4}, {1: 1.0}], r"row 0 \(m0\) sums to 0.9, not 1"),
        ([{0: 1.25, 1: -0.25}, {1: 1.0}], r"row 0 \(m0\): its weight for 1 \(m1\) is -0.25"),
        ([{0: 0.5, 7: 0.5}, {1: 1.0}], r"row 0 \(m0\) names member 7"),
        ([{0: float("nan")}, {1: 1.0}], r"row 0 \(m0\): its self weight is nan"),
    ],
)
def test_a_wrong_matrix_is_explained(rows: list[dict[int, float]], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Mixing(rows).validate(["m0", "m1"])
