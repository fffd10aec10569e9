"""Rounds whose pushes fill the line: nobody goes on without what is about to come, and all stay in one round."""

from __future__ import annotations

import pytest

from p2p.sim.reading import scenarios
from p2p.sim.trial import simulate


@pytest.mark.parametrize("straggler", [[], "1x5"])
def test_a_round_as_long_as_its_transfer_keeps_all_together(straggler: object) -> None:
    """A step computes 0.15 s, what it sends takes 1.6; the slow node's 0.75 s are no reason to go on without it."""
    scenario = {"nodes": 8, "algorithm": "gossip", "lan": "1gbit,1ms", "straggler": straggler, "until": "time=40s"}
    (result,) = (simulate(each) for each in scenarios(scenario))
    assert min(result.steps) > 12
    assert max(result.steps) - min(result.steps) <= 4
    assert result.last.distance < 0.02
