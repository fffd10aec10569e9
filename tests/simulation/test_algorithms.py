"""Each synchronous algorithm, run by real agents over the simulated network, against its recursion in numpy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

import topology
from p2p.config import LAN, ExchangeConfig
from p2p.errors import ConfigError
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Quadratics
from tests.simulation import recursions
from tests.simulation.recursions import Array, Problem, Recursion

STEPS = 30
SMALL = replace(LAN, exchange=ExchangeConfig(block_bytes=32, message_bytes=64))
"""Blocks of four numbers, two to a message."""
OFF = "deadline=off"


def rate(base: float, step: int) -> float:
    """A rate that changes: formulas that hold only for a constant one would show."""
    return base * (1 + 0.3 * np.cos(step))


@dataclass(frozen=True)
class Scheduled(Quadratics):
    """Quadratics under a changing rate."""

    def optimizer(self, model: nn.Module) -> Optimizer:
        optimizer = super().optimizer(model)
        schedule: LRScheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(1.0, step))
        optimizer.register_step_post_hook(lambda *_: schedule.step())
        return optimizer


@dataclass(frozen=True)
class Several(Scheduled):
    """The same functions of several tensors end to end, each as long as a block."""

    tensors: int = 3

    def model(self, node: int) -> nn.Module:
        vector = super().model(node).value.detach()
        return nn.ParameterList([piece.clone() for piece in vector.chunk(self.tensors)])

    def gradient(self, node: int, model: nn.Module) -> None:
        matrix, centre = self.function(node)
        whole = matrix @ (nn.utils.parameters_to_vector(model.parameters()).detach() - centre)
        for parameter, piece in zip(model.parameters(), whole.chunk(self.tensors), strict=True):
            parameter.grad = piece.clone()


@dataclass(frozen=True)
class Case:
    algorithm: str
    recursion: Recursion
    topology: str = "base:k=1"
    nodes: int = 6
    lr: float = 0.05
    momentum: float = 0.0
    tensors: int = 1


CASES = [
    Case(f"gossip:{OFF}", recursions.gossip),
    Case(f"gossip:{OFF}", recursions.gossip, "exponential", 7),
    Case(f"gossip:{OFF}", recursions.shared_momentum, lr=0.01, momentum=0.9),
    Case(f"gossip:{OFF},momentum=local", recursions.local_momentum, "ring", 8, lr=0.01, momentum=0.9),
    Case(f"gossip:{OFF},momentum=tracked,forget=0", recursions.tracked_momentum, "ring", 8, lr=0.01, momentum=0.9),
    Case(f"gossip:{OFF},momentum=tracked,forget=0.1", partial(recursions.tracked_momentum, forget=0.1), lr=0.01, momentum=0.9),
    Case(f"gossip:{OFF},overlap=yes", recursions.overlapped, "one-peer-exponential", 8),
    Case(f"od-sgd:{OFF},local=0.5", partial(recursions.od_sgd, local=0.5, beta=0.0), "one-peer-exponential", 8),
    Case(f"od-sgd:{OFF},momentum=local", partial(recursions.od_sgd, local=1.0, beta=0.9), lr=0.01, momentum=0.9),
    Case(f"gossip:{OFF},momentum=quasi-global", recursions.quasi_global),
    Case(f"local:{OFF},period=4", partial(recursions.local, period=4), "complete", 5, lr=0.01, momentum=0.9),
    Case(f"local:{OFF},period=4,switch=9", partial(recursions.local, period=4, switch=9), lr=0.01, momentum=0.9),
    Case(f"pga:{OFF},every=4", partial(recursions.pga, every=4), "base:k=1", 6, lr=0.01, momentum=0.9),
    Case(f"pga:{OFF},every=5", partial(recursions.pga, every=5), "one-peer-exponential", 8, lr=0.01, momentum=0.9),
    Case(
        f"block-cyclic:{OFF},groups=3",
        partial(recursions.block_cyclic, groups=3),
        "one-peer-exponential",
        8,
        lr=0.02,
        momentum=0.9,
        tensors=3,
    ),
    Case(
        f"block-cyclic:{OFF},groups=2", partial(recursions.block_cyclic, groups=2), "ring", 5, lr=0.02, momentum=0.9, tensors=4
    ),
    Case(f"dreamddp:{OFF},period=3", partial(recursions.dreamddp, period=3), lr=0.02, momentum=0.9, tensors=3),
    Case(f"relay-sum:{OFF}", recursions.relay_sum, "binary-tree", 7),
    Case(f"relay-sum:{OFF}", recursions.relay_sum, "chain", 6),
    Case(f"relay-sum:{OFF},clip=0", recursions.relay_sum, "chain", 8, tensors=3),
    Case(f"relay-sum:{OFF}", recursions.relay_sum, "star", 5),
    Case(f"slowmo:{OFF},period=5", partial(recursions.slowmo, period=5, beta=0.2, alpha=1.2), "complete", 5),
    Case(f"slowmo:{OFF},period=3,beta=0.4,alpha=0.7", partial(recursions.slowmo, period=3, beta=0.4, alpha=0.7)),
    Case(f"elastic:{OFF},force=0.3", partial(recursions.elastic, force=0.3), "ring", 7),
    Case(f"diloco:{OFF},period=5", partial(recursions.diloco, period=5, rate=0.7, mu=0.6), "complete", 5),
    Case(f"diloco:{OFF},period=3,rate=0.4,mu=0.9", partial(recursions.diloco, period=3, rate=0.4, mu=0.9)),
    Case(
        f"palsgd:{OFF},rate=0.7,mu=0.9,period=6,pull=3,kappa=0.25",
        partial(recursions.diloco, period=6, rate=0.7, mu=0.9, pull=3, kappa=0.25),
    ),
    Case(
        f"palsgd:{OFF},period=5,pull=2",
        partial(recursions.diloco, period=5, rate=1.4, mu=0.6, pull=2, kappa=0.5, beta=0.9),
        lr=0.01,
        momentum=0.9,
    ),
    Case(f"oldsgd:{OFF},period=4", partial(recursions.oldsgd, period=4), "one-peer-exponential", 8),
    Case(f"extra:{OFF}", recursions.extra, "ring", 8),
    Case(f"d2:{OFF}", recursions.d2, "ring:weights=lazy", 8),
    Case(f"gradient-tracking:{OFF}", recursions.gradient_tracking, "ring", 5),
    Case(f"gradient-tracking:{OFF}", recursions.gradient_tracking, "one-peer-exponential", 8),
    Case(f"momentum-tracking:{OFF}", recursions.momentum_tracking, lr=0.005),
    Case(f"gradient-gossip:{OFF}", recursions.gradient_gossip, lr=0.01, momentum=0.9),
    Case(f"push-sum:{OFF}", recursions.push_sum, "one-peer-exponential", 7),
    Case(f"push-sum:{OFF}", recursions.push_sum, "tests.simulation.recursions:Uneven", 6),
    Case(f"decentlam:{OFF}", recursions.decentlam, "ring", 8, lr=0.005),
]


@cache
def run(case: Case) -> tuple[Array, Problem]:
    """The nodes' models after STEPS steps, and the problem as numpy sees it."""
    work, config = Scheduled(case.nodes, learning_rate=case.lr, momentum=case.momentum), LAN
    if case.tensors > 1:
        config = SMALL
        work = Several(case.nodes, 4 * case.tensors, learning_rate=case.lr, momentum=case.momentum, tensors=case.tensors)
    swarm = SimulatedSwarm(case.nodes, topology=case.topology, algorithm=case.algorithm, workload=work, config=config)
    swarm.run(steps=STEPS)
    functions = [work.function(i) for i in range(case.nodes)]
    a = np.stack([matrix.numpy() for matrix, _ in functions])
    b = np.stack([centre.numpy() for _, centre in functions])
    start = np.stack([nn.utils.parameters_to_vector(work.model(i).parameters()).detach() for i in range(case.nodes)])
    return swarm.vectors().numpy(), Problem(a, b, start, mixing(swarm, case.topology), partial(rate, case.lr))


def mixing(swarm: SimulatedSwarm, name: str) -> partial[Array]:
    """The matrix of a round, in the order of the nodes' numbers instead of the view's."""
    members = swarm.nodes[0].agent.view.members
    places = [[member.id for member in members].index(node.agent.node) for node in swarm.nodes]
    made = topology.make(name)

    def matrix(round: int) -> Array:
        return made.whole(members, round).matrix()[np.ix_(places, places)]

    return partial(matrix)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.algorithm} on {case.topology}")
def test_the_agents_compute_the_recursion(case: Case) -> None:
    models, problem = run(case)
    np.testing.assert_allclose(models, case.recursion(problem, STEPS, 1.0), rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.algorithm} on {case.topology}")
def test_one_sign_makes_the_difference(case: Case) -> None:
    models, problem = run(case)
    assert np.abs(models - case.recursion(problem, STEPS, -1.0)).max() > 1e-3


ALONE = [
    "gossip",
    "gossip:overlap=yes",
    "local",
    "oldsgd",
    "pga",
    "relay-sum",
    "dreamddp",
    "d2",
    "extra",
    "gradient-tracking",
    "async",
    "ad-psgd",
    "push-sum",
    "push-sum:overlap=yes",
]


@pytest.mark.parametrize("algorithm", ALONE)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_node_alone_is_the_plain_optimizer_bit_for_bit(algorithm: str, momentum: float) -> None:
    work = Scheduled(1, learning_rate=0.05, momentum=momentum)
    swarm = SimulatedSwarm(1, topology="ring", algorithm=algorithm, workload=work).run(steps=STEPS)
    assert torch.equal(swarm.vectors()[0], plain(work))


def test_od_sgd_alone_is_plain_sgd_bit_for_bit() -> None:
    """Its own compensation is that of SGD without momentum."""
    work = Scheduled(1, learning_rate=0.05)
    assert torch.equal(
        SimulatedSwarm(1, topology="ring", algorithm="od-sgd", workload=work).run(steps=STEPS).vectors()[0], plain(work)
    )


@pytest.mark.parametrize("algorithm", ["block-cyclic:groups=3", "block-cyclic:groups=3,momentum=tracked"])
def test_block_cyclic_alone_is_the_plain_optimizer_on_one_tensor_after_the_other(algorithm: str) -> None:
    work = Several(1, 12, learning_rate=0.05, momentum=0.9)
    swarm = SimulatedSwarm(1, topology="ring", algorithm=algorithm, workload=work).run(steps=STEPS)
    model = work.model(0)
    optimizer = work.optimizer(model)
    for step in range(STEPS):
        work.gradient(0, model)
        for place, parameter in enumerate(model.parameters()):
            if place != step % 3:
                parameter.grad = None
        optimizer.step()
    assert torch.equal(swarm.vectors()[0], nn.utils.parameters_to_vector(model.parameters()).detach())


def test_momentum_tracking_alone_is_sgd_with_momentum_bit_for_bit() -> None:
    swarm = SimulatedSwarm(1, topology="ring", algorithm="momentum-tracking", workload=Scheduled(1, learning_rate=0.05)).run(
        steps=STEPS
    )
    assert torch.equal(swarm.vectors()[0], plain(Scheduled(1, learning_rate=0.05, momentum=0.9)))


def plain(work: Quadratics) -> torch.Tensor:
    model = work.model(0)
    optimizer = work.optimizer(model)
    for _ in range(STEPS):
        work.gradient(0, model)
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("algorithm", ["momentum-tracking", "decentlam", "gossip:momentum=quasi-global"])
def test_an_algorithm_with_its_own_momentum_refuses_a_second_one(algorithm: str) -> None:
    with pytest.raises(ConfigError, match=r"momentum=0"):
        SimulatedSwarm(2, topology="complete", algorithm=algorithm, workload=Quadratics(2, momentum=0.9)).run(steps=1)
