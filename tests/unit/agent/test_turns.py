"""Turns: what a step asks for is what its link carries meanwhile."""

from __future__ import annotations

import pytest

from p2p.agent.turns import RUNS, turns


@pytest.mark.parametrize("period", [1, 3, 8])
@pytest.mark.parametrize("blocks", [1, 9, 64, 1000])
def test_every_step_asks_for_about_as_much(blocks: int, period: int) -> None:
    found = turns([100] * blocks, 500.0, period)
    loads = [found.count(step) for step in range(period)]
    assert len(found) == blocks and sum(loads) == blocks
    assert max(loads) - min(loads) <= -(-blocks // RUNS)


def test_neighbours_keep_together() -> None:
    found = turns([100] * 640, 500.0, 4)
    assert all(len(set(found[first : first + 10])) == 1 for first in range(0, 640, 10))


def test_a_long_block_has_a_step_for_itself() -> None:
    found = turns([1000, 100, 100, 100, 100], 500.0, 2)
    assert found[1:] == [1 - found[0]] * 4
