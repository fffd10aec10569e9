"""Random scenarios: size, sites, algorithm and faults all follow from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.faults import Fault
from p2p.sim.faults import draw as draw_faults
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Drifting

SITES = ("eu", "us")
TRAINING, QUIET = 45.0, 75.0
"""Seconds. The quiet must be longer than it takes to find a death out and to heal a cut: suspicion, then a push-pull."""


@dataclass(frozen=True)
class Scenario:
    """One random run."""

    seed: int
    nodes: int
    algorithm: str
    topology: str
    faults: tuple[Fault, ...]

    @property
    def patience(self) -> float:
        """Seconds that one step may wait for others: until a death or a cut is found out, where it waits at all."""
        return 0.0 if self.algorithm == "async" else 60.0

    def play(self, make: Callable[..., SimulatedSwarm] = SimulatedSwarm) -> SimulatedSwarm:
        """Run it."""
        seed = self.seed
        made = make(
            self.nodes,
            seed=seed,
            algorithm=self.algorithm,
            topology=self.topology,
            workload=Drifting(16, seed),
            compute=Paced(1.0, 0.1, seed=seed),
            underlay=Underlay(seed, access=Line(1e-3, 1e-3, 1e8), between=Line(0.03, 0.01, 1e7)),
            sites=SITES,
            faults=self.faults,
        )
        return made.run(seconds=TRAINING, quiet=QUIET)


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = random.Random(seed)
    nodes = rng.randint(5, 30)
    algorithm = rng.choice(["async", "async", "gossip"])
    topology = rng.choice(["one-peer-exponential", "ring", "exponential"])
    return Scenario(seed, nodes, algorithm, topology, tuple(draw_faults(rng, nodes, SITES, TRAINING)))
