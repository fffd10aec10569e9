"""Step times."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev

import pytest

from p2p.errors import ConfigError
from p2p.sim.compute import Paced, Pause, Trace


def test_constant_slow_and_paused_steps() -> None:
    compute = Paced(0.5, slow={1: 5.0}, pauses=[Pause(2, 3, 10.0)])
    assert [compute.seconds(node, 3) for node in range(3)] == [0.5, 2.5, 10.5]
    assert compute.seconds(2, 4) == 0.5


def test_variation_is_the_coefficient_of_variation_and_keeps_the_mean() -> None:
    compute = Paced(2.0, variation=0.2, seed=1)
    times = [compute.seconds(0, step) for step in range(1, 5000)]
    assert mean(times) == pytest.approx(2.0, rel=0.02)
    assert stdev(times) / mean(times) == pytest.approx(0.2, rel=0.05)


def test_varying_nodes_start_out_of_phase_and_independently_of_each_other() -> None:
    one, other = Paced(variation=0.1, seed=1), Paced(variation=0.1, seed=1)
    starts = [one.seconds(node, 0) for node in range(50)]
    assert max(starts) - min(starts) > 0.8
    assert [other.seconds(node, 0) for node in reversed(range(50))] == starts[::-1]


def test_a_trace_is_read_by_node_and_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("1 2 3\n0.5\n")
    trace = Trace(path)
    assert [trace.seconds(0, step) for step in range(5)] == [1, 2, 3, 1, 2]
    assert [trace.seconds(node, 1) for node in range(4)] == [2, 0.5, 2, 0.5]


@pytest.mark.parametrize(
    ("text", "message"), [("", "no line"), ("1\n\n", "line 2"), ("1 x", "line 1: .*'x'"), ("-1", "negative"), ("nan", "line 1")]
)
def test_a_wrong_trace_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        Trace(path)
