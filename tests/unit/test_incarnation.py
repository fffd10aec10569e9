"""The incarnation that is kept: it only rises, over restarts and over clocks that go back."""

from pathlib import Path

import pytest
import torch
from torch import nn

import p2p
from p2p.agent.records import DAY
from p2p.config import TEST
from p2p.incarnation import Incarnation

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("kept", "first"),
    [
        ("", NOW),
        (f"{NOW - 5}\n", NOW),
        (f"{NOW}\n", NOW + 1),
        (f"{NOW + 3_600_000}\n", NOW + 3_600_001),  # the clock went back an hour
        (f"{NOW + DAY}\n", NOW + DAY + 1),
        (f"{NOW + DAY + 1}\n", NOW),  # absurd: nobody would take it
        (f"{2**64 - 1}\n", NOW),
        ("9" * 100, NOW),
        ("-3\n", NOW),
        ("²\n", NOW),
        ("\x00\xff", NOW),
    ],
)
def test_a_start_is_above_what_was_kept_and_not_below_the_clock(tmp_path: Path, kept: str, first: int) -> None:
    path = tmp_path / "node-0.incarnation"
    if kept:
        path.write_text(kept)
    assert Incarnation(path).next(NOW) == first
    assert path.read_text() == f"{first}\n"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_without_a_run_directory_the_clock_decides() -> None:
    incarnation = Incarnation(None)
    incarnation.keep(NOW + 7)
    assert incarnation.next(NOW) == NOW


def test_where_it_cannot_be_written_the_node_goes_on_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    incarnation = Incarnation(tmp_path / "gone" / "node-0.incarnation")
    assert incarnation.next(NOW) == NOW
    incarnation.keep(NOW + 1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_nodes_every_word_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Announced, refuted, left: a restart whose clock went back an hour is above all of it."""
    monkeypatch.setenv("STARLINGS_RUN_DIR", str(tmp_path))
    path = tmp_path / "node-0.incarnation"

    def live() -> tuple[int, int]:
        model = nn.Linear(2, 2)
        node = p2p.join(model, torch.optim.SGD(model.parameters(), lr=0.1), listen="tcp://127.0.0.1:0", config=TEST)
        first = node._agent.membership.record.incarnation  # type: ignore[union-attr]
        assert path.read_text() == f"{first}\n"
        node.close()
        return first, int(path.read_text())

    first, left = live()
    assert left == first + 1
    path.write_text(f"{left + 3_600_000}\n")
    assert live()[0] == left + 3_600_001
