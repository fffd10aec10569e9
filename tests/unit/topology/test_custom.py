"""A user's own: graphs, functions, files; and ten wrong ones, each with an error that says what to change."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import networkx
import numpy as np
import pytest

from topology import Member, Mixing, Topology, TopologyError, canonical, check, from_networkx, make


def test_a_networkx_graph_gets_metropolis_weights() -> None:
    w = from_networkx(networkx.path_graph(3)).whole(canonical(3), 0).matrix()
    np.testing.assert_allclose(w, [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]])


def test_edge_data_are_weights() -> None:
    graph = networkx.Graph()
    graph.add_edge("b", "a", weight=0.25)
    graph.add_edge("b", "c", weight=0.5)
    w = from_networkx(graph).whole(canonical(3), 0).matrix()
    np.testing.assert_allclose(w, [[0.75, 0.25, 0], [0.25, 0.25, 0.5], [0, 0.5, 0.5]])


def test_a_directed_graph_pushes() -> None:
    graph = networkx.DiGraph([(0, 1), (0, 2), (1, 0), (2, 0)])
    topology = make(graph)
    np.testing.assert_allclose(
        topology.whole(canonical(3), 0).matrix(), [[1 / 3, 1 / 2, 1 / 2], [1 / 3, 1 / 2, 0], [1 / 3, 0, 1 / 2]]
    )
    assert topology.properties(3).mean_preserving
    assert not topology.properties(3).doubly_stochastic


def test_numbers_sort_as_numbers() -> None:
    graph = networkx.path_graph([str(i) for i in range(12)])
    assert from_networkx(graph).whole(canonical(12), 0) == make("chain").whole(canonical(12), 0)


def test_a_graph_is_for_its_own_number_of_members() -> None:
    topology = from_networkx(networkx.petersen_graph())
    assert topology.refuses(9) == "<graph of 10 nodes> is for 10 members, not 9"
    properties = topology.properties(10)
    assert properties.symmetric
    assert properties.static
    assert properties.regular


def test_a_function_is_a_topology() -> None:
    topology = make(lambda members, round: Mixing.undirected(len(members), [(round % len(members), 0)]))
    assert topology.row(canonical(3), 2, 0).ins == ((2, 0.5),)


FILES = [
    ("graph.edges", "# the square\n0 1\n1 2\n2 3\n3 0\n", "ring"),
    ("graph.txt", "0 1 0.25\n1 2 0.25\n2 3 0.25\n3 0 0.25\n", None),
    ("graph.adjlist", "0 1 3\n1 2\n2 3\n3\n", "ring"),
]


@pytest.mark.parametrize(("name", "text", "same_as"), FILES)
def test_files(tmp_path: Path, name: str, text: str, same_as: str | None) -> None:
    (tmp_path / name).write_text(text)
    whole = make(f"file:path={tmp_path / name}").whole(canonical(4), 0)
    if same_as:
        assert whole == make(same_as).whole(canonical(4), 0)
    else:
        np.testing.assert_allclose(whole.matrix()[0], [0.5, 0.25, 0, 0.25])


def test_graphml(tmp_path: Path) -> None:
    networkx.write_graphml(networkx.cycle_graph(5), tmp_path / "graph.graphml")
    assert make(f"file:path={tmp_path / 'graph.graphml'}").whole(canonical(5), 0) == make("ring").whole(canonical(5), 0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("graph.edges", "0 1\n0 1 2 3\n", "is no edge list: line 2 has 4 words"),
        ("graph.edges", "0 1 heavy\n", "is no edge list: could not convert"),
        ("graph.edges", "0 1 0.5\n1 2\n", "1 of 2 edges have a weight"),
        ("graph.edges", "", "the graph has no nodes"),
        ("graph.graphml", "<graphml", "is no GraphML"),
        ("missing.edges", None, "can't read"),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(TopologyError, match=message):
        make(f"file:path={tmp_path / name}")


Mix = Callable[[Sequence[Member], int], object]

TEN = [
    (lambda m, t: Mixing([{0: 0.5, 1: 0.4}, {1: 1}, {2: 1}]), r"row 0 \(m0\) sums to 0.9, not 1"),
    (lambda m, t: Mixing.directed(3, {(0, 1): 0.7, (0, 2): 0.7}), r"row 0 \(m0\): its self weight is -0.4"),
    (lambda m, t: Mixing.directed(3, {(1, 0): -0.1}), r"row 1 \(m1\): its weight for 0 \(m0\) is -0.1"),
    (lambda m, t: Mixing.directed(3, {(2, 0): float("nan")}), r"row 2 \(m2\): .* is nan; weights must be .* finite"),
    (lambda m, t: Mixing.undirected(3, [(0, 3)]), r"edge \(0, 3\) names member 3, but the 3 members are numbered 0 to 2"),
    (lambda m, t: Mixing.undirected(3, [("m0", "m1")]), r"names member 'm0', but the 3 members are numbered"),
    (lambda m, t: Mixing.undirected(2, [(0, 1)]), r"mixing is for 2 members, but there are 3"),
    (lambda m, t: networkx.cycle_graph(3), r"mixing returned a Graph; make a Mixing of it"),
    (lambda m, t: None, r"mixing returned a NoneType"),
]


@pytest.mark.parametrize(("mix", "message"), TEN)
def test_a_wrong_topology_is_explained(mix: Mix, message: str) -> None:
    class Wrong(Topology):
        def mixing(self, members: Sequence[Member], round: int) -> Mixing:
            return mix(members, round)  # type: ignore[return-value]

    with pytest.raises(TopologyError, match=message):
        Wrong().row(canonical(3), 0, 0)


def test_the_tenth_cuts_somebody_off() -> None:
    topology = make(lambda members, round: Mixing.undirected(len(members), [(0, 1), (2, 3)]))
    with pytest.raises(TopologyError, match="never reaches m2, m3; add an edge"):
        check(topology, canonical(4))
    check(make("ring"), canonical(4))


@pytest.mark.parametrize("weights", [[0.5, None], [0.7, 0.7], [-0.5, 0.1]])
def test_wrong_graphs_are_explained(weights: list[float | None]) -> None:
    graph = networkx.path_graph(3)
    for edge, weight in zip(graph.edges, weights, strict=True):
        if weight is not None:
            graph.edges[edge]["weight"] = weight
    with pytest.raises(TopologyError, match="weight"):
        from_networkx(graph)


def test_the_example_runs_and_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).resolve().parents[3]
    ran = subprocess.run(
        [sys.executable, "examples/custom_topology.py"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "never reaches m2, m3" in ran.stdout
    monkeypatch.syspath_prepend(str(root / "examples"))
    topology = make("custom_topology:Chords:chords=2")
    assert topology.properties(8).symmetric
    check(topology, canonical(8))
