"""Whom a joiner asks for the state: load, site, and the time that the bytes would take."""

from __future__ import annotations

import pytest

from p2p.agent.donors import Candidate, ranked
from p2p.net.messages import DonorAnswer, Pulse

MODEL = 100_000_000


def candidate(name: str, seconds: float = 0.01, carries: float = 0.0, guests: int = 0, elsewhere: bool = False) -> Candidate:
    return Candidate(name, elsewhere, seconds, carries, DonorAnswer(Pulse(5, 0.1), 0, guests))


@pytest.mark.parametrize(
    ("candidates", "order"),
    [
        ([candidate("far", 0.08), candidate("near", 0.001)], ["near", "far"]),
        ([candidate("near", 0.001, 1e6), candidate("fat", 0.08, 1e8)], ["fat", "near"]),
        ([candidate("unknown", 0.001), candidate("fat", 0.08, 1e8), candidate("thin", 0.01, 1e6)], ["fat", "unknown", "thin"]),
        ([candidate("fat", 0.08, 1e9, elsewhere=True), candidate("here", 0.01, 1e7)], ["here", "fat"]),
        ([candidate("busy", 0.01, 1e9, guests=1), candidate("idle", 0.08, 1e7, elsewhere=True)], ["idle", "busy"]),
    ],
)
def test_the_least_loaded_nearest_and_fattest_first(candidates: list[Candidate], order: list[str]) -> None:
    assert [each.node for each in ranked(candidates, MODEL)] == order
    assert [each.node for each in ranked(candidates[::-1], MODEL)] == order


def test_where_nothing_is_measured_the_first_to_answer_is_first() -> None:
    assert [c.node for c in ranked([candidate("b", 0.03), candidate("a", 0.02), candidate("c", 0.04)], MODEL)] == [
        "a",
        "b",
        "c",
    ]
