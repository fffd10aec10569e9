"""Push-sum's mass: nothing is lost with a message, at a leaver or a joiner; a death takes along what the dead one held."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from p2p.agent.mass_pusher import MassPusher
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.faults import Corrupt, Fault, Join, Kill, Leave
from p2p.sim.node import SimulatedNode
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging, Drifting
from p2p.state.mass import Mass

SIZE = 64


class Booked(SimulatedSwarm):
    """Keeps account of the mass that nodes bring along when they enter."""

    booked = 0.0
    brought: Tensor

    def entered(self, node: SimulatedNode) -> None:
        if not self.booked:
            self.brought = torch.zeros(SIZE, dtype=torch.float64)
        numerator, weight = holding(node)
        self.brought, self.booked = self.brought + numerator, self.booked + weight
        super().entered(node)


def holding(node: SimulatedNode) -> tuple[Tensor, float]:
    """Numerator and weight that a node has."""
    assert isinstance(node.shards, Mass)
    return node.shards._copy.piece(node.shards.blocks[0]).clone(), node.shards.weights[0]


def under_way(swarm: SimulatedSwarm) -> tuple[Tensor, float]:
    """Numerator and weight of all parcels that nobody has taken yet."""
    total, weight = torch.zeros(SIZE, dtype=torch.float64), 0.0
    exchanges = {node.agent.node: node.agent.exchange for node in swarm.living}
    for sender, exchange in exchanges.items():
        assert isinstance(exchange, MassPusher)
        for number, parcel in exchange.parcels.open.items():
            receiver = exchanges.get(parcel.partner)
            assert isinstance(receiver, MassPusher)
            if number not in receiver.parcels._seen[sender].ids:
                under = exchange._under[number]
                total += under.buffer[: under.used].view(torch.float64)
                weight += under.push.weight
        for held in exchange._held:
            total += held.pieces[0][1].view(torch.float64)
            weight += held.weight
    return total, weight


def run(algorithm: str, workload: Averaging, faults: list[Fault], seed: int) -> Booked:
    swarm = Booked(
        7,
        seed=seed,
        algorithm=algorithm,
        workload=workload,
        compute=Paced(mean=0.2, variation=0.2, seed=seed),
        underlay=Underlay(seed, access=Line(latency=0.005)),
        faults=faults,
    )
    swarm.run(seconds=40.0)
    swarm.schedule.assert_fired()
    return swarm


def tally(swarm: SimulatedSwarm, name: str) -> int:
    exchanges = [node.agent.exchange for node in swarm.nodes]
    return sum(getattr(e.parcels.tally, name) for e in exchanges if isinstance(e, MassPusher))


LOSSES: list[Fault] = [Corrupt(node, 0.05) for node in range(7)]


@pytest.mark.parametrize(
    ("algorithm", "workload"),
    [("push-sum", Averaging(SIZE, 3)), ("push-sum", Drifting(SIZE, 3)), ("push-sum:overlap=yes", Averaging(SIZE, 3))],
)
def test_losses_a_leaver_and_a_joiner_move_no_mass(algorithm: str, workload: Averaging) -> None:
    swarm = run(algorithm, type(workload)(SIZE, 3), [*LOSSES, Leave(2, at=12.0), Join(at=15.0)], seed=3)
    assert tally(swarm, "again") > 20
    assert len(swarm.living) == 7
    assert min(node.steps for node in swarm.living) > 60
    parts = [holding(node) for node in swarm.living] + [under_way(swarm)]
    numerator, weight = torch.stack([x for x, _ in parts]).sum(0), sum(w for _, w in parts)
    expected = swarm.brought + swarm.setting.workload.moved()
    assert weight == pytest.approx(swarm.booked, abs=1e-9)
    torch.testing.assert_close(numerator / weight, expected / swarm.booked, rtol=0, atol=1e-9)


def test_a_death_takes_along_what_the_dead_one_held_and_no_more() -> None:
    swarm = run("push-sum:overlap=yes", Averaging(SIZE, 4), [*LOSSES, Kill(3, at=10.0)], seed=4)
    parts = [holding(node) for node in swarm.living] + [under_way(swarm)]
    numerator, weight = torch.stack([x for x, _ in parts]).sum(0), sum(w for _, w in parts)
    lost, weight_lost = holding(swarm.nodes[3])
    assert tally(swarm, "returned") >= 1
    assert swarm.booked - weight_lost - 1e-9 <= weight < swarm.booked
    torch.testing.assert_close(numerator / weight, (swarm.brought - lost) / (swarm.booked - weight_lost), rtol=0, atol=1e-6)
