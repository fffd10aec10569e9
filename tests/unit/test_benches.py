"""The benches check before they time, keep going where a contender fails, and make the page of what they wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
MODULES = ("harness", "venvs", "exchange", "report", "attacks", "all", "overlap", "memory")
ECHO = "import sys, json\nprint('1', flush=True)\nfor line in sys.stdin: print(json.dumps(line.strip()), flush=True)"


class Crew:
    """Errors as given, one after each exchange; times of 2 s for 2 exchanges."""

    def __init__(self, errors: list[float]) -> None:
        self.errors = errors
        self.words: list[str] = []

    def say(self, word: str) -> list[Any]:
        self.words.append(word)
        if word == "error":
            return [0.0, self.errors.pop(0)]
        return [{"began": 1.0, "ended": 2.5, "count": 2}, {"began": 1.5, "ended": 3.0, "count": 2}]


def test_an_exchange_is_timed_once_the_results_are_equal(bench: dict[str, ModuleType]) -> None:
    crew = Crew([0.5, 1e-4])
    found = bench["exchange"].measure(crew, checks=3, warm=1, rounds=2)
    assert found["seconds"] == [1.0, 1.0] and found["until equal"] == [2]
    assert crew.words == ["fill", "exchange", "error", "exchange", "error", "exchange", "exchange", "exchange"]


def test_an_exchange_that_does_not_give_the_mean_is_not_timed(bench: dict[str, ModuleType]) -> None:
    with pytest.raises(bench["harness"].Failed, match=r"not equal: after 3 exchanges one is 0\.2 of the spread"):
        bench["exchange"].measure(Crew([0.5, 0.3, 0.2]), checks=3, warm=1, rounds=2)


def test_a_contender_that_fails_or_is_missing_is_a_row_that_says_so(bench: dict[str, ModuleType]) -> None:
    contender = bench["harness"].Contender
    rivals = [
        contender("echo", (sys.executable, "-c", ECHO)),
        contender("broken", (sys.executable, "-c", "raise SystemExit('no such thing')")),
        contender("absent", missing="can't be installed"),
    ]
    found = bench["harness"].alternate(rivals, 2, 2, lambda crew: {"said": [len(word) for word in crew.say("hello")]})
    assert found["echo"] == {"said": [5, 5, 5, 5]}
    assert found["broken"].splitlines()[-1] == "no such thing"
    assert found["absent"] == "can't be installed"


def test_the_page_has_every_table(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    table = '{"title": "T", "columns": ["way", "ms"], "rows": [["a|b", "1.0"]], "notes": ["n"]}'
    head = '"bench": "x", "command": "python x.py", "settings": {"nodes": 2}, "machine": {"cores": 2}'
    (tmp_path / "x.json").write_text(f'{{{head}, "tables": [{table}]}}')
    page = bench["report"].page(tmp_path)
    assert "| way | ms |\n| --- | ---: |\n| a\\|b | 1.0 |" in page and "`python x.py` (nodes 2)" in page


@pytest.mark.parametrize("attack", ["flip", "little", "dissensus", "close"])
@pytest.mark.parametrize("rule", ["async", "gossip"])
def test_every_lie_gets_to_the_honest(bench: dict[str, ModuleType], rule: str, attack: str) -> None:
    """By swaps and by pushes: other models come of it than where the same two send what nobody takes."""
    told, refused = (bench["attacks"].accuracies(rule, lie, "shuffled", 4, 0) for lie in (attack, "nan"))
    assert told != refused


@pytest.mark.parametrize("rule", ["async", "gossip"])
def test_the_gate_is_what_bears_gross_values(bench: dict[str, ModuleType], rule: str) -> None:
    clean, borne, believed = (
        bench["attacks"].accuracies(rule, "clean", "shuffled", 8, 0)[1],
        bench["attacks"].accuracies(rule, "1e8", "shuffled", 8, 0)[1],
        bench["attacks"].accuracies(f"{rule}:clip=0", "1e8", "shuffled", 8, 0)[1],
    )
    assert abs(borne - clean) < 0.1 < clean - believed


def test_the_page_in_the_docs_is_made_of_the_results_there(bench: dict[str, ModuleType]) -> None:
    docs = bench["report"].DOCS
    assert (docs / "benchmarks.md").read_text() == bench["report"].page(docs / "benchmarks")


def test_every_result_in_the_docs_is_of_a_bench_that_all_runs(bench: dict[str, ModuleType]) -> None:
    names = {b.name for b in bench["all"].BENCHES}
    assert {path.stem for path in (bench["report"].DOCS / "benchmarks").glob("*.json")} <= names
    assert all((BENCH / f"{name}.py").exists() for name in names)


def test_the_bound_of_a_step_counts_what_it_spends(bench: dict[str, ModuleType]) -> None:
    """Alone 100 ms; with the swarm 120 ms, of which 5 ms CPU in the trainer and 10 ms elsewhere: the bound is 120 ms."""
    alone = {"seconds": [0.1], "updates": [0.0], "trainer": [0.09], "others": [0.0]}
    beside = {"seconds": [0.12], "updates": [1e-4], "trainer": [0.095], "others": [0.01]}
    found = {"large": {"alone": alone, "async": beside}, "tiny": {"alone": alone, "async:period=10": "it failed"}}
    step, cost = bench["overlap"].aims(found)
    assert step.got == pytest.approx(1.0) and cost.held == "not measured"
    found["tiny"]["async:period=10"] = {**beside, "others": [2e-5]}
    assert bench["overlap"].aims(found)[1].got == pytest.approx(120)


def test_memory_is_held_against_training_alone(bench: dict[str, ModuleType]) -> None:
    memory = bench["memory"]
    shared = memory.SHARED["large"]
    found = {
        "alone": {"peak": [3e8], "growth": [0.0]},
        "ddp": {"peak": [4e8], "growth": [0.0]},
        "async": {"peak": [3e8 + memory.LINK + 2 * shared], "growth": [0.03]},
        "gossip": "it failed",
    }
    more, failed, growth, _ = memory.aims("large", found)
    assert more.got == pytest.approx(2.0) and more.held == "yes"
    assert failed.held == "not measured" and growth.held == "no"


def test_told_to_end_a_bench_ends_its_processes_first(bench: dict[str, ModuleType]) -> None:
    """And a second word, while it does, changes nothing."""
    text = """
import os, signal, harness
harness.heed()
try:
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
finally:
    os.kill(os.getpid(), signal.SIGTERM)
    print("ended")
"""
    environment = {**os.environ, "PYTHONPATH": f"{BENCH}{os.pathsep}{bench['harness'].ROOT}"}
    result = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (143, "ended\n")


def test_all_goes_on_after_a_bench_that_fails(
    bench: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = bench["all"]
    monkeypatch.setattr(runner, "HERE", tmp_path)
    (tmp_path / "good.py").write_text("import pathlib, sys; pathlib.Path(sys.argv[-1]).write_text(' '.join(sys.argv[1:-1]))")
    (tmp_path / "bad.py").write_text("raise SystemExit(3)")
    (tmp_path / "slow.py").write_text("import signal; signal.pause()")
    assert runner.run(runner.Bench("good", 1, "--full", "--small 2"), quick=True, folder=tmp_path)
    assert (tmp_path / "good.json").read_text() == "--small 2 --json"
    assert not runner.run(runner.Bench("bad", 1), quick=False, folder=tmp_path)
    assert not runner.run(runner.Bench("slow", 0.001), quick=False, folder=tmp_path)
