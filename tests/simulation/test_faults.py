"""Random schedules of faults: whatever strikes, the invariants hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from p2p.sim import invariants, soak
from p2p.sim.swarm import SimulatedSwarm

Make = Callable[..., SimulatedSwarm]


@pytest.mark.parametrize("seed", range(20))
def test_invariants_hold_under_random_faults(swarm: Make, seed: int) -> None:
    scenario = soak.draw(seed)
    made = scenario.play(swarm)
    made.schedule.assert_fired()
    invariants.check(made, wait=scenario.patience)
