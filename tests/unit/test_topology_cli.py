"""`starlings topology`, and the quantities that it reads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from p2p import units
from p2p.cli import app
from p2p.errors import ConfigError


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["topology", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_all_names_are_listed_with_their_parameters() -> None:
    listed = json.loads(run("list", "--json"))
    assert listed["base"]["parameters"] == {"k": "1"}
    assert listed["ring"]["about"]
    assert "one-peer-exponential" in run("list")


def test_the_ring_of_eight_has_its_known_numbers() -> None:
    (ring,) = json.loads(run("show", "ring", "-n", "8", "--json"))
    assert ring["contraction"] == pytest.approx(0.8047, abs=5e-5)
    assert ring["rounds"] == 32
    assert ring["degree"] == 2


def test_a_thin_link_between_sites_makes_rounds_longer() -> None:
    slow, fast = (
        json.loads(run("show", "ring", "-n", "8", "--sites", "2", "--wan", wan, "--json"))[0] for wan in ("100mbit", "1gbit")
    )
    assert slow["round_time"] > 5 * fast["round_time"]


def test_a_number_that_is_refused_is_a_row_that_says_so() -> None:
    shown = run("show", "hypercube", "ring", "-n", "12")
    assert "refused" in shown
    assert "8 or 16 would do" in shown


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code = (
        f"from p2p.topology_cli import app; app(['show', 'ring', 'base:k=1', '-n', '6', '--plot', {str(tmp_path / 'a.png')!r}])"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)  # matplotlib keeps fonts open
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_wrong_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean ring"):
        run("show", "rign")


@pytest.mark.parametrize(
    ("text", "expected"), [("100mbit", 12.5e6), ("10gbit", 1.25e9), ("1.5 mbit", 187500.0), ("800kbit", 1e5), ("8bit", 1.0)]
)
def test_bandwidths_are_bytes_per_second(text: str, expected: float) -> None:
    assert units.bandwidth(text) == expected


@pytest.mark.parametrize("text", ["", "100", "mbit", "0mbit", "-1mbit", "100mb", "1e9bit"])
def test_what_is_no_bandwidth_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="not a bandwidth"):
        units.bandwidth(text)


def test_sizes_are_bytes() -> None:
    assert (units.size("100MB"), units.size("2kb")) == (100e6, 2000.0)
