"""Unlike quadratics on eight nodes: who reaches the optimum, who stalls at a bias, which pairs are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import optim
import topology
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced, Pause
from p2p.sim.faults import Kill
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Quadratics

NODES = 8


def distance(algorithm: str, name: str, lr: float, steps: int, momentum: float = 0.0) -> float:
    """Root mean square distance of all models to the optimum."""
    work = Quadratics(NODES, learning_rate=lr, momentum=momentum)
    swarm = SimulatedSwarm(NODES, topology=name, algorithm=algorithm, workload=work).run(steps=steps)
    return float((swarm.vectors() - work.minimum).square().mean().sqrt())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "name", "lr", "steps", "limit"),
    [
        ("gradient-tracking", "ring", 0.1, 330, 1e-12),
        ("momentum-tracking", "ring", 0.01, 560, 1e-12),
        ("d2", "ring:weights=lazy", 0.2, 250, 1e-11),
        ("extra", "ring", 0.2, 250, 1e-11),
    ],
)
def test_corrected_methods_reach_the_optimum(algorithm: str, name: str, lr: float, steps: int, limit: float) -> None:
    assert distance(algorithm, name, lr, steps) < limit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "lr", "momentum"),
    [("gossip", 0.2, 0.0), ("gossip:momentum=local", 0.02, 0.9), ("gossip:momentum=quasi-global", 0.2, 0.0)],
)
def test_plain_methods_stall_at_a_bias_that_shrinks_with_the_rate(algorithm: str, lr: float, momentum: float) -> None:
    far, near = distance(algorithm, "ring", lr, 150, momentum), distance(algorithm, "ring", lr / 4, 250, momentum)
    assert 0.1 < far < 0.4
    assert far / 4 < near < far / 2


@pytest.mark.slow
def test_decentlam_stalls_an_order_below_momentum() -> None:
    assert distance("decentlam", "ring", 0.01, 250) < 0.15 * distance("gossip:momentum=local", "ring", 0.01, 250, 0.9)


@pytest.mark.parametrize("algorithm", ["gradient-tracking", "momentum-tracking", "d2", "extra"])
def test_corrections_heal_after_a_death(algorithm: str) -> None:
    """What the dead one had corrected is missing from the sum; without a new beginning the rest would miss their optimum."""
    work = Quadratics(5, learning_rate=0.02 if algorithm == "momentum-tracking" else 0.2)
    swarm = SimulatedSwarm(5, topology="ring:weights=lazy", algorithm=algorithm, workload=work, faults=[Kill(4, at=12.5)])
    swarm.run(steps=220)
    swarm.schedule.assert_fired()
    optimum = Quadratics(4).minimum
    assert float((swarm.vectors() - optimum).square().mean().sqrt()) < 1e-4


def test_corrections_heal_after_losses() -> None:
    """Step times so uneven that deadlines are missed: what was lost is not tracked for ever."""
    work = Quadratics(4, learning_rate=0.2)
    swarm = SimulatedSwarm(
        4,
        algorithm="gradient-tracking",
        workload=work,
        compute=Paced(mean=0.05, variation=0.1, pauses=[Pause(0, k, 3.0) for k in (10, 30)]),
    )
    swarm.run(seconds=16.0)
    assert any(report.skipped for node in swarm.nodes for report in node.reports)
    assert float((swarm.vectors() - work.minimum).square().mean().sqrt()) < 1e-3


def asynchronous(algorithm: str, seconds: float, faults: Sequence[Kill] = ()) -> float:
    """Distance to the optimum of those who live, of swaps among five nodes, one of them three times slower."""
    work = Quadratics(5, learning_rate=0.01, momentum=0.9)
    swarm = SimulatedSwarm(
        5,
        seed=1,
        algorithm=algorithm,
        workload=work,
        compute=Paced(mean=1.0, variation=0.2, slow={0: 3.0}, seed=1),
        underlay=Underlay(1, access=Line(latency=0.05)),
        faults=faults,
    )
    swarm.run(seconds=seconds)
    optimum = Quadratics(len(swarm.living)).minimum
    return float((swarm.vectors() - optimum).square().mean().sqrt())


def test_swaps_with_tracked_momentum_reach_the_optimum_though_one_node_is_slow() -> None:
    """Whatever the timing: shared momentum alone favours whoever steps more often."""
    assert asynchronous("async:forget=0", 250.0) < 1e-4
    assert asynchronous("async:forget=0.01", 150.0) < 0.05
    assert asynchronous("async:momentum=shared", 150.0) > 0.1


def test_what_a_death_takes_along_is_forgotten() -> None:
    assert asynchronous("async:forget=0.01", 250.0, [Kill(4, at=20.5)]) < 0.08
    assert asynchronous("async:forget=0", 250.0, [Kill(4, at=20.5)]) > 0.12


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ring", r"eigenvalues down to -0.3333.*ring:weights=lazy"),
        ("torus", r"torus:weights=lazy"),
        ("exponential", r"symmetric.*--topology"),
        ("one-peer-exponential", r"static, symmetric.*--algorithm gossip"),
    ],
)
def test_d2_is_refused_where_it_would_diverge(name: str, why: str) -> None:
    with pytest.raises(optim.Incompatible, match=why):
        optim.check(optim.make("d2"), topology.make(name), NODES)


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [("d2", "ring:weights=lazy"), ("d2", "complete"), ("push-sum", "one-peer-exponential"), ("gossip", "ring")],
)
def test_what_converges_is_let_through(algorithm: str, name: str) -> None:
    optim.check(optim.make(algorithm), topology.make(name), NODES)
