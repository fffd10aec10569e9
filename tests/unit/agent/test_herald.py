"""When news of work is sent: at once, then at the interval, for as many rounds as it takes."""

import random

import pytest

from p2p.agent.herald import Herald
from p2p.config import WorkConfig

CONFIG = WorkConfig(interval=0.1, fanout=3, refresh=1.0)


def herald(others: int) -> Herald:
    made = Herald(CONFIG, random.Random(0), 0.0)
    made.seat(f"n{i}" for i in range(others))
    return made


def test_a_node_alone_says_nothing() -> None:
    alone = herald(0)
    alone.tell("a")
    assert alone.wake == float("inf")
    assert alone.refresh(100.0) is None


def test_news_goes_at_once_and_then_at_the_interval() -> None:
    made = herald(3)
    made.tell("a")
    assert made.wake <= 0.0
    pieces, members = made.round(0.0)
    assert pieces == {"a"} and sorted(members) == ["n0", "n1", "n2"]
    assert made.round(0.05) == (set(), [])
    assert made.round(0.1)[0] == {"a"}
    assert made.round(0.2) == (set(), [])  # two rounds reached all, twice
    assert made.wake == 1.0


def test_what_is_urgent_waits_only_for_what_was_urgent() -> None:
    made = herald(3)
    made.tell("a")
    made.round(0.0)
    made.tell("b", urgent=True)
    assert made.round(0.01)[0] == {"a", "b"}
    made.tell("c", urgent=True)
    assert made.round(0.05)[0] == set()
    assert made.round(0.11)[0] == {"b", "c"}


def test_all_members_are_told_in_turn() -> None:
    made = herald(9)
    told = []
    for round in range(3):
        made.tell("a")
        told += made.round(round * 0.1)[1]
    assert sorted(told) == sorted(f"n{i}" for i in range(9))


def test_one_member_is_told_everything_each_second() -> None:
    made = herald(4)
    assert made.refresh(0.99) is None
    assert made.refresh(1.0) in {"n0", "n1", "n2", "n3"}
    assert made.refresh(1.5) is None


@pytest.mark.parametrize(("others", "depth"), [(1, 1), (3, 1), (4, 2), (15, 2), (16, 3), (63, 3), (255, 4)])
def test_depth(others: int, depth: int) -> None:
    assert herald(others).depth == depth
