"""The benches check before they time, keep going where a contender fails, and make the page of what they wrote."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
MODULES = ("harness", "venvs", "exchange", "report", "attacks")
ECHO = "import sys, json\nprint('1', flush=True)\nfor line in sys.stdin: print(json.dumps(line.strip()), flush=True)"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.syspath_prepend(str(BENCH))
    yield {name: __import__(name) for name in MODULES}
    for name in MODULES:
        sys.modules.pop(name, None)


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


@pytest.mark.parametrize("rule", ["async", "gossip"])
def test_the_gate_is_what_bears_gross_values(bench: dict[str, ModuleType], rule: str) -> None:
    clean, borne, believed = (
        bench["attacks"].accuracies(rule, "clean", "shuffled", 8, 0)[1],
        bench["attacks"].accuracies(rule, "1e8", "shuffled", 8, 0)[1],
        bench["attacks"].accuracies(f"{rule}:clip=0", "1e8", "shuffled", 8, 0)[1],
    )
    assert abs(borne - clean) < 0.1 < clean - believed
