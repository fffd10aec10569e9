"""How training may end: SWAP, a common phase, one without exchange, and the average of what came out of it."""

from __future__ import annotations

from torch import nn

from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Digits


def test_swaps_average_is_at_least_as_good_as_its_best_worker() -> None:
    """Gupta et al., "SWAP" (2020): `local` with a switch, and a period that never ends."""
    work = Digits(8, split="shuffled")
    swarm = SimulatedSwarm(8, topology="complete", algorithm="local:switch=15,period=1000000000", workload=work)
    swarm.run(steps=90)
    models = [node.model for node in swarm.nodes]
    average = work.model(0)
    nn.utils.vector_to_parameters(swarm.vectors().mean(0), average.parameters())
    scores = [work.score(model) for model in models]
    assert swarm.distance() > 0.01, "the workers were on their own"
    assert work.score(average) >= max(scores) > 0.9
