"""The contract of the two basic algorithms: names, what they share, what they need."""

from __future__ import annotations

import pytest

import optim
import topology
from topology import SpecError


@pytest.mark.parametrize(
    ("spec", "exchange", "shares", "needs"),
    [
        ("async", "swap", True, frozenset()),
        ("async:momentum=local", "swap", False, frozenset()),
        ("async:period=3", "swap", True, frozenset()),
        ("gossip", "push", True, frozenset({"doubly_stochastic"})),
        ("gossip:momentum=local", "push", False, frozenset({"doubly_stochastic"})),
        ("gossip:deadline=off", "push", True, frozenset({"doubly_stochastic"})),
    ],
)
def test_a_spec_and_back(spec: str, exchange: str, shares: bool, needs: frozenset[str]) -> None:
    made = optim.make(spec)
    assert optim.spec_of(made) == spec
    assert (made.exchange, made.shares_state, made.needs) == (exchange, shares, needs)
    assert optim.make(optim.spec_of(made)) == made


@pytest.mark.parametrize("spec", ["gosip", "gossip:deadlin=off", "gossip:deadline=maybe", "async:period=often"])
def test_what_does_not_exist_is_refused(spec: str) -> None:
    with pytest.raises(SpecError):
        optim.make(spec)


def test_a_name_that_is_nearly_right_is_told() -> None:
    with pytest.raises(SpecError, match="gossip"):
        optim.make("gosip")


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("graph", ["ring", "complete", "exponential", "one-peer-exponential"])
@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_the_basic_pairs_converge(algorithm: str, graph: str, n: int) -> None:
    optim.check(optim.make(algorithm), topology.make(graph), n)


def test_a_pair_that_cannot_converge_is_refused_with_one_that_can() -> None:
    class Lopsided(topology.Topology):
        """Everybody takes half of the first one's value: rows sum to 1, columns don't."""

        def mixing(self, members: object, round: int) -> topology.Mixing:
            n = len(members)  # type: ignore[arg-type]
            return topology.Mixing([{0: 1.0}, *({0: 0.5, i: 0.5} for i in range(1, n))])

    with pytest.raises(optim.Incompatible, match=r"doubly stochastic.*--topology .*--algorithm async|doubly stochastic"):
        optim.check(optim.make("gossip"), Lopsided(), 4)
    optim.check(optim.make("async"), Lopsided(), 4)


@pytest.mark.parametrize(
    ("algorithm", "graph", "n", "instead"),
    [
        ("relay-sum", "ring", 8, "topology that is tree, .*--topology binary-tree, or --algorithm gossip"),
        ("relay-sum", "double-tree", 8, "binary-tree"),
        ("pga", "ring", 8, "finite time, .*--topology one-peer-exponential"),
        ("pga", "one-peer-exponential", 6, "--topology base"),
    ],
)
def test_the_nearest_topology_that_does_is_named(algorithm: str, graph: str, n: int, instead: str) -> None:
    with pytest.raises(optim.Incompatible, match=instead):
        optim.check(optim.make(algorithm), topology.make(graph), n)


@pytest.mark.parametrize("graph", ["binary-tree", "chain", "star", "tests.unit.optim.test_algorithms:Broom"])
def test_relays_run_on_every_tree(graph: str) -> None:
    optim.check(optim.make("relay-sum"), topology.make(graph), 7)


class Broom(topology.Topology):
    """A user's own tree, of which nothing is declared."""

    def mixing(self, members: object, round: int) -> topology.Mixing:
        n = len(members)  # type: ignore[arg-type]
        return topology.Mixing.undirected(
            n, [(i, min(i + 1, n // 2)) for i in range(n // 2)] + [(n // 2, i) for i in range(n // 2 + 1, n)]
        )
