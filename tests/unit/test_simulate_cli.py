"""`starlings simulate`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from p2p import simulate_cli
from p2p.cli import app
from p2p.errors import ConfigError

SMALL = ("--nodes", "4", "--workload", "consensus", "--model-size", "1MB", "--jobs", "1")


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *SMALL, *words], catch_exceptions=False)


def test_a_comparison_is_a_table_with_a_row_for_each_choice() -> None:
    words = (
        "--topology ring --topology base --algorithm gossip --algorithm all-reduce --until loss=0.01,steps=20 --seed 0 --seed 1"
    )
    result = invoke(*words.split())
    assert result.exit_code == 0
    rows = result.output.splitlines()
    assert [row.split("  ")[0] for row in rows] == ["algorithm and topology", "gossip on ring", "all-reduce", "gossip on base"]
    assert "not reached" not in result.output


def test_json_has_every_run() -> None:
    found = json.loads(invoke("--until", "steps=3", "--seed", "4", "--seed", "5", "--json").output)
    assert [(run["seed"], run["steps"]) for run in found] == [(4, [3] * 4), (5, [3] * 4)]


def test_options_go_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text('nodes = 9\nuntil = "steps=2"\nseed = 7\n')
    (run,) = json.loads(invoke("--json", str(file)).output)
    assert (run["seed"], run["steps"]) == (7, [2] * 4)


def test_wrong_arguments_are_said_before_anything_runs(tmp_path: Path) -> None:
    for words, says in (
        (("--until", "sometime"), "until: 'sometime'"),
        (("--topology", "ring", "--topology", "rign"), "did you mean ring"),
        (("--plot", str(tmp_path / "a.txt")), "must end in .png"),
        (("--plot", str(tmp_path / "none" / "a.png")), "there is no folder"),
    ):
        with pytest.raises(ConfigError, match=says):
            invoke(*words)


def test_an_interrupted_run_prints_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def show(bars: Any, scenario: Any, look: Any) -> None:
        looks.append(look)
        if len(looks) == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(simulate_cli.Bars, "show", show)
    before = signal.getsignal(signal.SIGINT)
    result = invoke("--until", "time=24h", "--seed", "0", "--seed", "1")
    assert result.exit_code == simulate_cli.INTERRUPTED
    assert "async on one-peer-exponential, seed 0: stopped at 0.6 s" in result.output
    assert "seed 1" not in result.output
    assert signal.getsignal(signal.SIGINT) is before


def test_notes_say_what_a_reader_must_know() -> None:
    thin = invoke(
        "--sites", "2", "--wan", "10mbit,40ms", "--model-size", "20MB", "--until", "steps=200", "--fault", "kill:1@1h"
    )
    assert "steps only" in thin.output
    assert "1 of 1 faults" in thin.output


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ["simulate", *SMALL, "--until", "steps=3", "--seed", "0", "--seed", "1", "--plot", str(tmp_path / "a.png")]
    code = f"from p2p.cli import app; app({words!r})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100, capture_output=True)  # matplotlib keeps fonts open
    assert (tmp_path / "a.png").stat().st_size > 1000
