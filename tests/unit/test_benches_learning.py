"""The pure parts of the benches of stragglers, churn and growth: what is drawn, counted, judged."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

MODULES = ("harness", "venvs", "board", "counting", "learner", "straggler", "churn", "scale", "report")


def test_a_target_is_held_at_most_or_at_least(bench: dict[str, ModuleType]) -> None:
    target = bench["harness"].Target
    assert target("x", 1.7, 1.7).row() == ("x", "at most 1.7", "1.7", "yes")
    assert target("x", 1.7, 1.71).held == "no"
    assert target("x", 2.2, 2.2, least=True).held == "yes"
    assert target("x", 2.2, 2.1, least=True).held == "no"
    assert target("x", 2.2, None).row() == ("x", "at most 2.2", "", "not measured")
    assert target("x", 2.2, math.nan).held == "not measured"


def test_a_failure_is_kept_and_anything_else_is_not_hidden(bench: dict[str, ModuleType]) -> None:
    harness, failed = bench["harness"], dict[str, str]()
    with harness.excused("a", failed):
        raise harness.Failed("why")
    with pytest.raises(ValueError, match="other"), harness.excused("b", failed):
        raise ValueError("other")
    assert failed == {"a": "why"}


# --- stragglers ------------------------------------------------------------------------------------------------------


def test_a_board_has_the_mean_and_the_step_after_which_all_stop(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    board = bench["board"]
    mine, other = board.Board(tmp_path, 2, 3, new=True), board.Board(tmp_path, 2, 3)
    mine.note(0, 7, np.array([1, 2, 3], np.float32))
    other.note(1, 9, np.array([3, 2, 1], np.float32))
    assert mine.mean().tolist() == [2, 2, 2]
    assert not other.called
    mine.call()
    assert other.called and other.last == 9 + board.GO_ON


def test_lengths_are_those_of_the_case(bench: dict[str, ModuleType]) -> None:
    case = bench["straggler"].Case
    assert np.array_equal(case("sorted", "none slow", 0, 0.1).lengths(), np.full((8, 1000), 0.1))
    slow = case("sorted", "one slow", 10, 0.1).lengths()
    assert np.allclose(slow[2], 0.5) and np.allclose(np.delete(slow, 2, axis=0), 0.1)
    random = case("sorted", "random", 1, 0.1).lengths()
    assert random.mean() == pytest.approx(0.1, rel=0.02)
    assert random.std() / random.mean() == pytest.approx(0.3, rel=0.05)
    assert np.array_equal(random, case("shuffled", "random", 1, 0.1).lengths())


def test_a_rank_trains_what_the_simulator_would(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    case = bench["straggler"].Case("sorted", "none slow", 3, 0.1)
    case.save(tmp_path / "case.npz")
    learner = bench["learner"].Learner(tmp_path / "case.npz", 5)
    twin, work = case.work.model(5), case.work
    work.gradient(5, twin)
    learner.loss(learner.model).backward()
    for mine, other in zip(learner.model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, other) and torch.equal(mine.grad, other.grad)
    assert learner.optimizer.defaults["lr"] == work.optimizer(twin).defaults["lr"]


def track(bench: dict[str, ModuleType], times: list[float], values: list[float]) -> object:
    return bench["straggler"].Track(np.array(times), np.array(values, np.float32)[:, None])


def test_the_goal_is_reached_by_the_mean_of_the_newest(bench: dict[str, ModuleType]) -> None:
    """Means in time: 0.25 (at 1), 0.5 (2), 0.75 (3), 0.95 and more (4)."""
    tracks = [track(bench, [1.0, 3.0, 4.0], [0.5, 1.0, 1.5]), track(bench, [2.0], [0.5])]
    start = np.zeros(1, np.float32)
    assert bench["straggler"].reached(tracks, start, lambda mean: float(mean[0])) == (4.0, 2.0)
    assert bench["straggler"].reached(tracks, start, lambda mean: 0.0) == (math.inf, math.inf)


def test_how_far_apart_and_how_late(bench: dict[str, ModuleType]) -> None:
    straggler = bench["straggler"]
    tracks = [track(bench, [1.0, 1.5, 2.0], [1.0, 1.0, 3.0]), track(bench, [1.0, 1.11, 1.22], [0.0, 0.0, 5.0])]
    assert straggler.apart(tracks, np.array([2.0], np.float32)) == pytest.approx(0.5)  # 1 from the mean, which came 2 far
    case = straggler.Case("sorted", "one slow", 0, 0.1)
    assert straggler.late(tracks, case) == pytest.approx(0.1)  # the slow one's half seconds don't count


def test_what_is_aimed_at_is_over_medians(bench: dict[str, ModuleType]) -> None:
    outcome = bench["straggler"].Outcome
    found = {
        "sorted, one slow": {
            "async": [outcome(s, 0, 0) for s in (1.0, 2.0, 90.0)],
            "ddp": [outcome(s, 0, 0) for s in (6.0, 5.0, 7.0)],
        },
        "shuffled, none slow": {"async": [outcome(3.0, 24.0, 0)], "ddp": [outcome(3.0, 16.0, 0)]},
        "shuffled, one slow": {"async": [outcome(3.0, 24.0, 0)], "ddp": [outcome(math.inf, math.inf, 0)]},
        "sorted, random": {"async": [outcome(3.0, 24.0, 0)]},
    }
    rows = {target.what: target.row()[2:] for target in bench["straggler"].aims(found, "async")}
    assert rows["sorted, one slow: times sooner than ddp"] == ("3", "yes")
    assert rows["shuffled, none slow: steps over ddp's"] == ("1.5", "no")
    assert rows["shuffled, one slow: times sooner than ddp"] == ("inf", "yes")
    assert rows["sorted, random: seconds over ddp's"] == ("", "not measured")


# --- churn, growth ---------------------------------------------------------------------------------------------------


def test_rates_are_of_spans(bench: dict[str, ModuleType]) -> None:
    churn = bench["churn"]
    steps = [9.9, 10.0, 10.5, 11.9, 12.1, 15.9, 16.1]
    assert churn.rates(steps, 10.0, spans=3, length=2.0) == [48.0, 16.0, 16.0]
    assert churn.kept({"calm": [10.0, 10.0], "churn": [10.0, 8.0]}) == pytest.approx(0.9)


def test_tables_have_who_failed_and_why(bench: dict[str, ModuleType]) -> None:
    spans = {"calm": [100.0, 110.0], "churn": [90.0, 99.0], "killed": [2]}
    made = bench["churn"].table({"async": spans}, {"ddp": "not in time\nthe last line"}, 4, 10.0)
    assert made.rows[0] == ("async", "105 (100 to 110)", "94 (90 to 99)", "90%", "2")
    assert made.rows[1][0] == "ddp: not in time; the last line"
    outcome = bench["straggler"].Outcome
    found = {"sorted, random": {"async": [outcome(2.0, 20.0, 0.05)], "ddp": [outcome(3.0, 30.0, 0.0)]}}
    made = bench["straggler"].table(found, {"decent-dp": "why\nit ended"}, ["async", "ddp", "decent-dp"], 40.0)
    assert made.rows[0] == ("sorted, random: async", "2.0 (2.0 to 2.0)", "20 (20 to 20)", "1.50", "5%")
    assert made.rows[2][0] == "decent-dp: it ended"
    figures = {what: [1.0] for what in bench["scale"].WHAT}
    made = bench["scale"].table("real", {4: figures}, {"8 real": "no room", "64 simulated": "elsewhere"})
    assert [row[0] for row in made.rows] == ["4", "8 real: no room"]
    assert {len(row) for row in made.rows} == {len(made.columns)}


def test_flat_is_most_over_least_from_a_size_on(bench: dict[str, ModuleType]) -> None:
    by_size = {2: {"cpu": [100.0]}, 4: {"cpu": [2.0, 2.0, 50.0]}, 8: {"cpu": [3.0]}}
    assert bench["scale"].flatness(by_size, 4, "cpu") == 1.5
    assert bench["scale"].flatness(by_size, 8, "cpu") is None


class Transport:
    """There is room for short headers."""

    def send(self, route: int, header: bytes, payload: memoryview | None = None) -> object | None:
        return self if len(header) < 10 else None


def test_what_is_sent_is_counted(bench: dict[str, ModuleType]) -> None:
    transport = Transport()
    counting = bench["counting"].Counting(transport)
    assert transport.send(1, b"abc") is transport
    assert transport.send(1, b"abc", memoryview(b"12345")) is transport
    assert transport.send(1, b"too long for it") is None
    assert (counting.messages, counting.bytes) == (2, 11)
    counting.reset()
    assert (counting.messages, counting.bytes) == (0, 0)


@pytest.mark.parametrize("name", ["straggler", "churn", "scale"])
def test_what_a_bench_writes_is_what_the_page_shows(
    bench: dict[str, ModuleType], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = bench["straggler"].Outcome
    figures = {what: [2.0] for what in bench["scale"].WHAT}
    found = {
        "straggler": (
            "compare",
            {"sorted, one slow": {"async": [outcome(2.0, 20.0, 0.0)], "ddp": [outcome(math.inf, 5.0, 0.0)]}},
        ),
        "churn": ("compare", {"async": {"calm": [100.0], "churn": [80.0], "killed": [1]}}),
        "scale": ("grow", {"real": {4: figures, 8: figures}, "simulated": {}}),
    }
    work, result = found[name]
    monkeypatch.setattr(bench[name], work, lambda *_: (result, {"somebody": "why not"}))
    if name == "straggler":
        monkeypatch.setattr(bench[name], "python_of", lambda *_: (None, "not here"))
    monkeypatch.setattr(sys, "argv", [name, "--json", str(tmp_path / f"{name}.json")])
    monkeypatch.setattr(bench["harness"], "heed", lambda: None)  # it is pytest's process
    bench[name].main()
    shown = {
        "straggler": "| at least 2.2 | inf | yes |",
        "churn": "| at least 0.85 | 0.8 | no |",
        "scale": "| at most 1.2 | 1 | yes |",
    }
    assert shown[name] in bench["report"].page(tmp_path)
    assert "Targets" in capsys.readouterr().out and "Infinity" not in (tmp_path / f"{name}.json").read_text()
