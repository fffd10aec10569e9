"""Choices that concern the asynchronous algorithms: momentum, partners, period, staleness."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from optim.staleness import explicit_momentum, implicit_momentum
from p2p.agent.swapper import Swapper
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.invariants import check
from p2p.sim.node import SimulatedNode
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Digits, Drifting


@dataclass(frozen=True)
class Measured(Drifting):
    """Drifting, where local updates are what the optimizer did, whatever the algorithm made of the gradient."""

    _done: list[Tensor] = field(default_factory=list, init=False, repr=False, compare=False)

    def optimizer(self, model: nn.Module) -> Optimizer:
        optimizer = super().optimizer(model)
        (value,) = model.parameters()
        before: list[Tensor] = []
        optimizer.register_step_pre_hook(lambda *_: before.append(value.detach().clone()))
        optimizer.register_step_post_hook(lambda *_: self._done.append(value.detach() - before.pop()))
        return optimizer

    def moved(self) -> Tensor:
        return torch.stack(self._done).sum(0)


def swarm(
    algorithm: str, work: object, topology: str = "one-peer-exponential", slow: dict[int, float] | None = None
) -> SimulatedSwarm:
    return SimulatedSwarm(
        6,
        seed=1,
        topology=topology,
        algorithm=algorithm,
        workload=work,  # type: ignore[arg-type]
        compute=Paced(mean=0.15, variation=0.1, slow=slow or {}, seed=1),
        underlay=Underlay(1, access=Line(latency=0.005)),
    )


@pytest.mark.parametrize(
    "algorithm",
    ["async", "async:momentum=shared", "async:momentum=local", "async:momentum=quasi-global", "ad-psgd", "async:period=3"],
)
def test_the_mean_moves_by_local_updates_only(algorithm: str) -> None:
    run = swarm(algorithm, Measured(64, 1)).run(steps=40, quiet=3.0)
    check(run, wait=0.0)


def swaps(node: SimulatedNode) -> int:
    exchange = node.agent.exchange
    assert isinstance(exchange, Swapper)
    return exchange.swaps.tally.swapped


def test_a_period_spaces_swaps() -> None:
    often, seldom = (swarm(f"async:period={k}", Drifting(64, 1)).run(steps=40) for k in (1, 4))
    assert sum(map(swaps, seldom.nodes)) < 0.5 * sum(map(swaps, often.nodes))


def test_a_switch_begins_the_period_later() -> None:
    early, late = (swarm(f"async:period=8,switch={k}", Drifting(64, 1)).run(steps=40) for k in (0, 20))
    assert sum(map(swaps, late.nodes)) > 1.5 * sum(map(swaps, early.nodes))


def test_random_partners_are_many() -> None:
    run = swarm("ad-psgd", Drifting(64, 1), topology="complete").run(steps=40)
    for node in run.nodes:
        assert {partner for report in node.reports for partner in report.partners} == {
            other.agent.node[:10] for other in run.nodes if other is not node
        }


@pytest.mark.parametrize(
    ("target", "staleness", "expected"),
    [(0.9, 0.0, 0.9), (0.9, -2.0, 0.9), (0.9, 1.0, 0.4), (0.9, 3.0, 0.15), (0.9, 9.0, 0.0), (0.5, 4.0, 0.0)],
)
def test_the_rule_of_omnivore(target: float, staleness: float, expected: float) -> None:
    assert explicit_momentum(target, staleness) == pytest.approx(expected)


def test_implicit_momentum_grows_with_the_groups() -> None:
    assert [implicit_momentum(g - 1) for g in (1, 2, 4, 10)] == pytest.approx([0.0, 0.5, 0.75, 0.9])


def test_measured_staleness_sets_the_momentum() -> None:
    run = swarm("async:target=0.9", Digits(6, seed=1), slow={0: 4.0}).run(steps=12)
    fast = [node.optimizer.param_groups[0]["momentum"] for node in run.nodes[1:]]
    assert min(fast) < 0.9
    assert all(0 <= momentum <= 0.9 for momentum in fast)
    for node in run.nodes:
        assert all(torch.isfinite(p).all() for p in node.model.parameters())
