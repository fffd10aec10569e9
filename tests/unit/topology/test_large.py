"""Ten thousand members: a row costs little more than its degree, counted in Python operations, not by a clock."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from topology import Member, canonical, make

N = 10_000
LIMITS = [
    ("ring", 100), ("torus", 150), ("binary-tree", 150), ("double-tree", 150), ("exponential", 300),
    ("one-peer-exponential", 150), ("exponential-matching", 50), ("n-peer-exponential", 150), ("base", 250),
    ("base:k=4", 250), ("hyper-hypercube:k=4", 150), ("d-equistatic", 500), ("u-equistatic", 700), ("od-equidyn", 100),
    ("ou-equidyn", 100), ("random-matching", 100), ("regular", 150), ("erdos-renyi", 600), ("small-world", 250),
    ("epidemic-oracle", 250), ("epidemic-local", 250), ("two-level:inside=base", 250), ("adaptive", 250), ("star", 60),
]  # fmt: skip
"""Lines that one row may execute, for a node in the middle and a round that nobody has asked for yet."""


def lines_of(call: Callable[[], object]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.fixture(scope="module")
def members() -> tuple[Member, ...]:
    return canonical(N, 4)


@pytest.mark.parametrize(("spec", "limit"), LIMITS)
def test_a_row_among_ten_thousand(spec: str, limit: int, members: tuple[Member, ...]) -> None:
    topology = make(spec)
    topology.row(members, 0, 0)
    assert lines_of(lambda: topology.row(members, 9, 4321)) <= limit


MOVED = [
    ("ring", 0.01), ("chain", 0.01), ("star", 0.01), ("regular", 0.06), ("regular:degree=3", 0.15),
    ("erdos-renyi:p=0.05", 0.04), ("small-world", 0.06), ("binary-tree", 0.5),
]  # fmt: skip


def edges(spec: str, names: list[str]) -> set[frozenset[str]]:
    members = tuple(Member(name) for name in sorted(names))
    rows = make(spec).whole(members, 0).rows
    return {frozenset((members[i].id, members[j].id)) for i, row in enumerate(rows) for j in row if i != j}


@pytest.mark.parametrize(("spec", "share"), MOVED)
def test_a_joining_member_moves_few_edges_of_the_others(spec: str, share: float) -> None:
    names = [f"{i * 7919 % 1009:04x}" for i in range(200)]
    before, after = edges(spec, names), edges(spec, [*names, "zzz", "zzzz"])
    gone = before - after
    assert len(gone) <= share * len(before)
