"""Several runs at once."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from p2p.sim.pool import simulate_all
from p2p.sim.scenario import Scenario, Until

SMALL = Scenario(nodes=2, workload="consensus", model=1e6, until=Until(steps=3))
ENDLESS = [replace(SMALL, until=Until(time=1e6), seed=seed) for seed in range(3)]

PROCESSES = """
from dataclasses import replace
from p2p.errors import ConfigError
from p2p.sim.pool import simulate_all
from p2p.sim.scenario import Scenario, Until

small = Scenario(nodes=2, workload="consensus", model=1e6, until=Until(steps=3))
runs = [replace(small, seed=seed) for seed in range(3)]
assert simulate_all(runs, jobs=2) == simulate_all(runs, jobs=1)

endless = [replace(small, until=Until(time=1e6), seed=seed) for seed in range(3)]
stopped = simulate_all(endless, lambda scenario, look: look.steps > 20, jobs=2)
assert [(run.scenario.seed, run.complete) for run in stopped] == [(0, False), (1, False)]

try:
    simulate_all([endless[0], replace(small, topology="rign")], jobs=2)
except ConfigError as error:
    print(error)
"""


def test_processes_give_what_one_gives_end_together_and_pass_on_errors() -> None:
    done = subprocess.run([sys.executable, "-c", PROCESSES], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert "did you mean ring" in done.stdout


def test_enough_is_enough_in_turn_too() -> None:
    (result,) = simulate_all(ENDLESS, lambda scenario, look: look.steps > 20, jobs=1)
    assert not result.complete
