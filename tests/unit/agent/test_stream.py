"""What a link that is behind carries: the most out of date first, weighted by change, everything in the end."""

from __future__ import annotations

import pytest

from p2p.agent.round_robin import Block
from p2p.agent.stream import Stream


def stream(blocks: int, offset: int = 0) -> tuple[Stream, list[Block]]:
    """All blocks are owed to a."""
    made = [Block(0, 100, debts={"a": 2.0}) for _ in range(blocks)]
    found = Stream(made, offset)
    found.behind["a"] = None
    return found, made


def carried(found: Stream, messages: int, now: float = 10.0, span: int = 1) -> list[int]:
    """Where messages of `span` blocks begin, a second apart."""
    firsts = []
    for k in range(messages):
        first = found.next("a", span, 1, now + k)
        assert first is not None
        found.met("a", first, (1 << span) - 1, now + k)
        firsts.append(first)
    return firsts


@pytest.mark.parametrize(
    ("offset", "span", "order"),
    [
        (0, 1, [0, 1, 2, 3, 4, 5, 0, 1]),
        (4, 1, [4, 5, 0, 1, 2, 3, 4, 5]),  # the other end begins elsewhere
        (0, 2, [0, 2, 4, 0, 2, 4]),
        (0, 4, [0, 4, 0, 4]),
    ],
)
def test_without_differences_all_take_turns(offset: int, span: int, order: list[int]) -> None:
    found, _ = stream(6, offset)
    assert carried(found, len(order), span=span) == order


def test_what_changes_more_goes_more_often_and_nothing_starves() -> None:
    found, _ = stream(5)
    for _ in range(100):
        for i in range(5):
            found.differed(i, 8.0 if i == 3 else 1.0)
    firsts = carried(found, 200)
    counts = [firsts.count(i) for i in range(5)]
    assert counts[3] > 1.5 * max(counts[:3])
    assert min(counts) >= 20


def test_what_came_from_the_partner_is_up_to_date() -> None:
    found, _ = stream(4)
    found.met("a", 0, 0b0101, 5.0)
    found.met("b", 1, 0b1, 9.0)
    assert carried(found, 4) == [1, 3, 0, 2]


def test_what_is_held_waits_and_what_is_not_owed_is_not_sent() -> None:
    found, blocks = stream(3)
    blocks[0].held = 1
    blocks[1].debts = {"b": 1.0}
    assert carried(found, 2) == [2, 2]
    blocks[2].debts = {}
    assert found.next("a", 1, 1, 20.0) is None
    assert "a" in found.behind, "block 0 is owed still"
    blocks[0].debts = {}
    assert found.next("a", 1, 1, 20.0) is None
    assert "a" not in found.behind


def test_who_is_gone_is_forgotten() -> None:
    found, _ = stream(2)
    found.met("a", 0, 1, 50.0)
    found.partners({"b"})
    assert not found.behind
    assert found.next("a", 1, 1, 60.0) == 0
