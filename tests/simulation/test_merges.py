"""Merges by age, progress and loss, and the moving average: real agents over the simulated network, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from p2p.errors import StateError
from p2p.net.messages import SnapshotOffer
from p2p.sim.node import SimulatedNode
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging, Quadratics
from tests.simulation import merge_recursions as recursions
from tests.simulation.recursions import Array, Problem, Recursion
from tests.simulation.test_algorithms import OFF, STEPS, Scheduled, mixing, plain, rate

AT = np.array([7, 3, 12, 1, 9, 4, 8.0])


class Resumed(SimulatedSwarm):
    """Node i goes on at step AT[i], as from a checkpoint, and all in round 1."""

    def entered(self, node: SimulatedNode) -> None:
        super().entered(node)
        node.agent.ready(SnapshotOffer(0, int(AT[node.index]), 0, 0, "", b"", b""))


@dataclass(frozen=True)
class Case:
    algorithm: str
    recursion: Recursion
    topology: str = "base:k=1"
    nodes: int = 6
    of: Callable[[SimulatedSwarm], Tensor] = SimulatedSwarm.vectors


def averages(swarm: SimulatedSwarm) -> Tensor:
    return torch.stack([torch.cat([value.flatten() for _, value in node.method.ema()]) for node in swarm.nodes])


CASES = [
    Case(f"aged:{OFF}", partial(recursions.aged, power=0.5, at=AT[:6])),
    Case(f"aged:{OFF},power=2", partial(recursions.aged, power=2.0, at=AT), "ring", 7),
    Case(f"progressive:{OFF}", partial(recursions.progressive, growth=0.05, at=AT[:6])),
    Case(f"progressive:{OFF},growth=0.2", partial(recursions.progressive, growth=0.2, at=AT), "exponential", 7),
    Case(f"line-search:{OFF}", partial(recursions.line_search, tries=4), "ring", 7),
    Case(f"line-search:{OFF},tries=3", partial(recursions.line_search, tries=3)),
    Case(f"pso:{OFF}", partial(recursions.pso, inertia=0.5, own=0.1, swarm=0.5), "ring", 7),
    Case(f"pso:{OFF},inertia=0.3,own=0.2,swarm=0.4", partial(recursions.pso, inertia=0.3, own=0.2, swarm=0.4)),
    Case(f"gossip:{OFF},ema=0.9", partial(recursions.moving_average, decay=0.9), of=averages),
]


@cache
def run(case: Case) -> tuple[Array, Problem]:
    """What came of STEPS steps, and the problem as numpy sees it."""
    work = Scheduled(case.nodes)
    swarm = Resumed(case.nodes, topology=case.topology, algorithm=case.algorithm, workload=work).run(steps=STEPS)
    functions = [work.function(i) for i in range(case.nodes)]
    a, b = (np.stack([part.numpy() for part in parts]) for parts in zip(*functions, strict=True))
    start = np.stack([next(work.model(i).parameters()).detach().numpy() for i in range(case.nodes)])
    matrix = mixing(swarm, case.topology)
    return case.of(swarm).numpy(), Problem(a, b, start, lambda t: matrix(t + 1), partial(rate, 0.05))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.algorithm} on {case.topology}")
def test_the_agents_compute_the_recursion(case: Case) -> None:
    found, problem = run(case)
    np.testing.assert_allclose(found, case.recursion(problem, STEPS, 1.0), rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.algorithm} on {case.topology}")
def test_one_sign_makes_the_difference(case: Case) -> None:
    found, problem = run(case)
    assert np.abs(found - case.recursion(problem, STEPS, -1.0)).max() > 1e-3


@pytest.mark.parametrize("algorithm", ["aged", "progressive", "line-search", "gossip:ema=0.9"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_node_alone_is_the_plain_optimizer_bit_for_bit(algorithm: str, momentum: float) -> None:
    work = Scheduled(1, momentum=momentum)
    swarm = SimulatedSwarm(1, topology="ring", algorithm=algorithm, workload=work).run(steps=STEPS)
    assert torch.equal(swarm.vectors()[0], plain(work))


def test_a_particle_alone_is_the_single_process_one_bit_for_bit() -> None:
    """Its q is its own p."""
    work = Scheduled(1)
    swarm = SimulatedSwarm(1, topology="ring", algorithm="pso", workload=work).run(steps=STEPS)
    model = work.model(0)
    optimizer, (x,) = work.optimizer(model), model.parameters()
    p, v = torch.zeros_like(x), torch.zeros_like(x)
    with torch.no_grad():
        for step in range(STEPS):
            work.gradient(0, model)
            optimizer.step()
            h, loss = x.clone(), work.batch_loss(0, model)
            x.copy_(p)
            p = h if step == 0 or loss <= work.batch_loss(0, model) else p
            v = v.mul(0.5).add(p - h, alpha=0.1).add(p - h, alpha=0.5)
            x.copy_(h + v)
    assert torch.equal(swarm.vectors()[0], x)


def test_the_average_of_a_node_alone_is_torchs_but_for_its_beginning() -> None:
    """`AveragedModel` begins with the first model; here that has its share of the weights only."""
    work = Scheduled(1)
    swarm = SimulatedSwarm(1, topology="ring", algorithm="gossip:ema=0.9", workload=work).run(steps=STEPS)
    averaged = torch.optim.swa_utils.AveragedModel(model := work.model(0), multi_avg_fn=_average(0.9))
    with torch.no_grad():
        nn.utils.vector_to_parameters(torch.zeros(10, dtype=torch.float64), averaged.module.parameters())
    averaged.n_averaged += 1
    optimizer = work.optimizer(model)
    for _ in range(STEPS):
        work.gradient(0, model)
        optimizer.step()
        averaged.update_parameters(model)
    share = 1 - 0.9**STEPS
    torch.testing.assert_close(averages(swarm)[0], next(averaged.module.parameters()) / share, rtol=0, atol=1e-12)


def _average(decay: float) -> Callable[..., object]:
    return torch.optim.swa_utils.get_ema_multi_avg_fn(decay)  # type: ignore[no-any-return,no-untyped-call]


@pytest.mark.parametrize("algorithm", ["gossip", "async", "push-sum"])
def test_the_mean_of_the_averages_is_the_average_of_the_mean(algorithm: str) -> None:
    """Exactly, for all nodes average the same steps: so consensus on them gives the swarm's."""
    swarm = Watched(4, algorithm=f"{algorithm}:ema=0.8", workload=Quadratics(4)).run(steps=20)
    weights = 0.8 ** torch.arange(19, -1, -1, dtype=torch.float64)
    means = torch.stack([torch.stack(path).mean(0) for path in zip(*swarm.paths.values(), strict=True)])
    torch.testing.assert_close(averages(swarm).mean(0), weights / weights.sum() @ means, rtol=0, atol=1e-12)


class Watched(SimulatedSwarm):
    """Writes down each node's model after each step."""

    def __init__(self, nodes: int, **settings: object) -> None:
        super().__init__(nodes, **settings)  # type: ignore[arg-type]
        self.paths: dict[int, list[Tensor]] = {}

    def entered(self, node: SimulatedNode) -> None:
        super().entered(node)
        path, mixed = self.paths.setdefault(node.index, []), node.method.mixed

        def watched(*given: int) -> None:
            mixed(*given)
            path.append(nn.utils.parameters_to_vector(node.model.parameters()).detach().clone())

        node.method.mixed = watched  # type: ignore[method-assign]


def test_what_compares_losses_says_that_it_needs_a_criterion() -> None:
    swarm = Blind(2, topology="complete", algorithm="pso", workload=Averaging())
    with pytest.raises(StateError, match=r"node\.criterion"):
        swarm.run(steps=1)


class Blind(SimulatedSwarm):
    def entered(self, node: SimulatedNode) -> None:
        super().entered(node)
        node.method.criterion = None
