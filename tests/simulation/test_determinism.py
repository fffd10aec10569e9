"""A seed replays every event, in whatever process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import random, sys
import torch
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.faults import Corrupt, Cut, Join, Kill, Leave, Stall
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Drifting

torch.set_num_threads(1)
seed = int(sys.argv[1])
faults = [
    Kill(7, at=6.0), Stall(9, at=4.0, for_=3.0), Cut(("us",), at=8.0, for_=5.0),
    Corrupt(11, 0.02, at=1.0), Join(at=3.0), Leave(20, at=9.0),
]
lines = Underlay(seed, access=Line(1e-3, 1e-3, 1e8), between=Line(0.03, 0.01, 1e7))
swarm = SimulatedSwarm(
    64, seed=seed, workload=Drifting(16, seed), compute=Paced(1.0, 0.1, seed=seed), underlay=lines, sites=["eu", "us", "asia"],
    faults=faults, algorithm=sys.argv[2],
)
swarm.run(seconds=20.0)
swarm.schedule.assert_fired()
print(*swarm.journal.lines, swarm.distance(), sep="\\n")
"""


def events(seed: int, hash_seed: int, algorithm: str) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(seed), algorithm]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=100).stdout


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_two_processes_give_the_same_bytes_and_another_seed_gives_others(algorithm: str) -> None:
    first = events(1, 1, algorithm)
    assert first.count(b"\n") > 1000
    assert events(1, 2, algorithm) == first
    assert events(2, 1, algorithm) != first
