"""RelaySum in a swarm: a death makes another tree, and those who are left agree again."""

from __future__ import annotations

from p2p.sim.faults import Kill
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging, Quadratics


def test_who_is_left_after_a_death_agrees_and_goes_on() -> None:
    swarm = SimulatedSwarm(7, topology="binary-tree", algorithm="relay-sum", workload=Averaging(), faults=[Kill(1, at=10.5)])
    swarm.run(seconds=90.0)
    swarm.schedule.assert_fired()
    assert len(swarm.living) == 6
    assert swarm.distance() < 1e-3
    assert min(node.steps for node in swarm.living) > 60


def test_a_long_chain_learns_unlike_data_where_gossip_lags() -> None:
    """Sixteen in a row: gossip takes n^2 rounds to carry a gradient to the other end, a relay n."""
    apart = {}
    for algorithm in ("relay-sum:deadline=off", "gossip:deadline=off"):
        work = Quadratics(16, learning_rate=0.05)
        swarm = SimulatedSwarm(16, topology="chain", algorithm=algorithm, workload=work).run(steps=150)
        apart[algorithm] = max(work.score(node.model) for node in swarm.nodes)
    assert apart["relay-sum:deadline=off"] < 0.7 * apart["gossip:deadline=off"]
