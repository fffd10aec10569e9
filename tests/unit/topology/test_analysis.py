"""Analysis: the reference table to the digits given, and the numbers that a user reads."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from topology import SpecError, TopologyError, analyze, canonical, errors, from_networkx, make, reference
from topology.analysis import REFERENCE
from topology.convergence import contraction, rounds_of, rounds_to

ROOT = Path(__file__).resolve().parents[3]
RHO = {
    4: (0.3333, 0.3333, 0.3333, 0.7500),
    8: (0.8047, 0.5000, 0.5000, 0.8750),
    16: (0.9493, 0.6000, 0.6000, 0.9375),
    32: (0.9872, 0.8828, 0.6667, 0.9688),
    64: (0.9968, 0.8828, 0.7143, 0.9844),
}
EXPONENTIAL_RHO = {6: 0.5000, 7: 0.3536, 12: 0.6000, 25: 0.5109}
ROUNDS = {
    4: (7, 7, 7, 2, 25, 2),
    8: (32, 10, 10, 3, 52, 3),
    16: (133, 14, 14, 4, 108, 4),
    32: (536, 56, 18, 5, 218, 5),
    64: (2149, 56, 21, 6, 439, 6),
    6: (18, None, 10, 14, None, 4),
    7: (24, None, 7, 12, None, 5),
    12: (74, None, 14, 19, None, 5),
    25: (327, None, 11, 24, None, 9),
}
"""In the order of REFERENCE; None: not in the literature's table."""


def test_the_reference_table() -> None:
    assert REFERENCE == ("ring", "torus", "exponential", "one-peer-exponential", "star", "base:k=1")
    lines = {line[0].n: line for line in reference()}
    for n, rounds in ROUNDS.items():
        assert [a.rounds if r is not None else None for a, r in zip(lines[n], rounds, strict=True)] == list(rounds)
    for n, (ring, torus, exponential, star) in RHO.items():
        found = {a.name: a.contraction for a in lines[n]}
        for name, rho in (("ring", ring), ("torus", torus), ("exponential", exponential), ("star", star)):
            assert round(found[name] or 0, 4) == rho, (name, n)
    for n, rho in EXPONENTIAL_RHO.items():
        assert round(lines[n][2].contraction or 0, 4) == rho


@pytest.mark.parametrize(
    ("spec", "n", "rho"),
    [
        ("ring", 10, (1 + 2 * np.cos(2 * np.pi / 10)) / 3),
        ("hypercube", 16, 1 - 2 / 5),
        ("star", 9, 1 - 1 / 9),
        ("torus:rows=4", 24, (1 + 2 + 2 * np.cos(2 * np.pi / 6)) / 5),
        ("exponential", 24, 1 - 2 / (1 + 5)),
    ],
)
def test_contractions_in_closed_form(spec: str, n: int, rho: float) -> None:
    assert contraction(make(spec), canonical(n)) == pytest.approx(rho, abs=1e-12)


@pytest.mark.parametrize("spec", ["ring", "one-peer-exponential", "base", "two-level", "random-matching", "star"])
def test_rounds_are_those_that_one_counts_step_by_step(spec: str) -> None:
    members = canonical(11, 3)
    rounds = rounds_to(make(spec), members)
    assert rounds is not None
    curve = errors(spec, members, rounds)
    assert curve[-1] < 1e-3 <= curve[-2]
    assert curve[0] == 1


def test_what_never_converges_says_so() -> None:
    split = np.kron(np.eye(2), np.full((2, 2), 0.5))
    assert rounds_of([split], 1e-3) is None
    swap = np.array([[0.0, 1], [1, 0]])
    assert rounds_of([swap], 1e-3) is None


def test_the_numbers_of_a_topology() -> None:
    (found,) = analyze("one-peer-exponential", 8, payload=1e6, lan=1e8)
    assert (found.name, found.degree, found.rounds, found.bytes_per_step) == ("one-peer-exponential", 1, 3, 1e6)
    assert found.gap == pytest.approx(1)
    assert found.round_time == pytest.approx(0.01 + 0.00025)
    assert found.consensus_time == pytest.approx(3 * found.round_time)


def test_a_table_over_several_with_sites_and_json() -> None:
    lines = analyze(["ring", "hypercube", "epidemic-local"], 6, sites=2, wan=100e6 / 8)
    assert lines[0].busiest_link.startswith(("from site", "to site"))
    assert lines[1].refused == "hypercube takes powers of two, not 6; 4 or 8 would do"
    assert lines[1].rounds is None
    assert lines[2].remark == "the mean moves: rows sum to 1, columns don't"
    assert lines[2].consensus_time is None
    assert json.loads(json.dumps([line.as_dict() for line in lines]))[0]["gap"] == pytest.approx(1 / 3)


def test_wrong_questions() -> None:
    with pytest.raises(SpecError, match="did you mean ring"):
        analyze("rign", 8)
    with pytest.raises(TopologyError, match="takes 1 to 1024 members, not 5000"):
        analyze("ring", 5000)


def test_a_graph_is_analyzed_too() -> None:
    import networkx

    (found,) = analyze(from_networkx(networkx.petersen_graph()), 10)
    assert found.contraction == pytest.approx(0.5)
    assert found.properties.smallest_eigenvalue == pytest.approx(-0.25)


def test_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code = "import topology, sys; from topology.plot import plot; plot(['ring', 'base'], topology.canonical(6, 2), sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "plot.png")], cwd=ROOT, check=True)  # fonts stay open
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
