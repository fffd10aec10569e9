"""What tests of benches share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"


@pytest.fixture
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The benches that the test's module lists as MODULES, by name; they are gone after the test."""
    monkeypatch.syspath_prepend(str(BENCH / "ways"))
    monkeypatch.syspath_prepend(str(BENCH))
    yield {name: __import__(name) for name in request.module.MODULES}
    for name in request.module.MODULES:
        sys.modules.pop(name, None)
