"""All-reduce and the parameter server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from p2p.net.physics import Line, Underlay
from p2p.sim.all_reduce import AllReduce
from p2p.sim.central import Central, Choice
from p2p.sim.compute import Paced
from p2p.sim.faults import Cut, Fault, Join, Kill, Leave, Slow, Stall
from p2p.sim.server import ParameterServer
from p2p.sim.workloads import Averaging, Digits, Workload

PLAIN = AllReduce(backward=0.0)


def central(choice: Choice, nodes: int = 4, *, workload: Workload | None = None, **arguments: Any) -> Central:
    given: dict[str, Any] = {
        "workload": workload or Averaging(8),
        "compute": Paced(1.0),
        "underlay": Underlay(access=Line(bandwidth=800.0)),
        "size": 800.0,
    }
    return Central(nodes, choice, **given | arguments)


def one_model(nodes: int, steps: int) -> Tensor:
    """Plain torch on the mean of all nodes' gradients."""
    work = Digits(nodes, "sorted")
    model = work.model(0)
    optimizer = work.optimizer(model)
    for _ in range(steps):
        found = []
        for node in range(nodes):
            work.gradient(node, model)
            found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        for p, parts in zip(model.parameters(), zip(*found, strict=True), strict=True):
            p.grad = torch.stack(parts).mean(0)
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("choice", [AllReduce(), ParameterServer(sync=True)], ids=["ring", "server"])
def test_it_trains_as_one_process_would(choice: Choice) -> None:
    swarm = central(choice, 3, workload=Digits(3, "sorted"), compute=Paced(1.0, 0.3)).run(steps=5)
    for vector in swarm.vectors():
        assert torch.allclose(vector, one_model(3, 5), atol=1e-6)


def test_the_first_meeting_makes_all_models_their_mean() -> None:
    work = Averaging(8)
    mean = torch.stack([nn.utils.parameters_to_vector(work.model(node).parameters()) for node in range(4)]).mean(0)
    for choice in (AllReduce(), ParameterServer(), ParameterServer(sync=True)):
        assert torch.equal(central(choice).run(steps=1).vectors(), mean.expand(4, 8)), choice


@pytest.mark.parametrize(
    ("choice", "seconds"),
    [
        (PLAIN, 10 * (1 + 1.5)),  # 2 (n - 1) / n of the model over each line
        (AllReduce(backward=1.0, bucket=12.5), 10 * (1 / 64 + 1.5)),  # it begins with the first of 64 buckets
        (AllReduce(backward=0.5, bucket=400), 10 * (0.75 + 1.5)),
    ],
)  # fmt: skip
def test_how_long_ten_steps_take(choice: Choice, seconds: float) -> None:
    swarm = central(choice).run(steps=10)
    assert max(sum(worker.seconds) for worker in swarm.nodes) == pytest.approx(seconds, rel=1e-3)
    assert swarm.nodes[0].waited == pytest.approx(sum(swarm.nodes[0].seconds) - 10)


def test_the_server_s_line_carries_all_models_in_and_out() -> None:
    swarm = central(ParameterServer(sync=True)).run(steps=1)
    assert max(worker.seconds[0] for worker in swarm.nodes) == pytest.approx(1 + 4 + 4)


def test_without_its_barrier_the_server_is_the_bottleneck_all_the_same() -> None:
    swarm = central(ParameterServer()).run(seconds=200.0)
    assert 160 <= sum(worker.steps for worker in swarm.nodes) <= 200  # one model a second at most, each way


def test_a_straggler_slows_all_but_those_that_do_not_wait() -> None:
    slow, fat = Paced(1.0, slow={0: 5.0}), Underlay()
    assert [w.steps for w in central(PLAIN, compute=slow, underlay=fat).run(seconds=50.5).nodes] == [10] * 4
    assert [w.steps for w in central(ParameterServer(), compute=slow, underlay=fat).run(seconds=50.5).nodes] == [10, 50, 50, 50]


def test_bytes_on_the_lines() -> None:
    sites = ("here", "there")
    assert central(PLAIN, sites=sites).run(steps=1).underlay.traffic() == (2 * 1200.0, 2 * 1200.0)  # two edges cross
    served = central(ParameterServer(sync=True), sites=sites).run(steps=1)
    assert served.underlay.traffic() == (4 * 800.0, 4 * 800.0)  # two of four workers are in the server's site


@pytest.mark.parametrize(
    ("faults", "steps", "seconds"),
    [
        ([Kill(1, 2.0)], [5, 0, 5, 5], 2.0 + 30.0 + 4 / 3 + 3 * (1 + 4 / 3)),  # they wait until the death is noticed
        ([Stall(1, 0.5, 10.0)], [5, 5, 5, 5], 10.0 + 5 * 2.5),
        ([Cut(("n1",), 0.5, 10.0)], [5, 5, 5, 5], 10.5 + 1.5 + 4 * 2.5),
        ([Slow(1, 2.0)], [5, 5, 5, 5], 18.5),  # 4 s for those beside the slow line, in turn
        ([Leave(1, 2.0)], [5, 1, 5, 5], 2.5 + 4 * (1 + 4 / 3)),
    ],
    ids=["kill", "stall", "cut", "slow", "leave"],
)
def test_faults_and_the_barrier(faults: Sequence[Fault], steps: list[int], seconds: float) -> None:
    swarm = central(PLAIN, faults=faults).run(steps=5)
    swarm.schedule.assert_fired()
    assert [worker.steps for worker in swarm.nodes] == steps
    assert sum(swarm.nodes[0].seconds) == pytest.approx(seconds, abs=0.3)


def test_a_death_does_not_hold_up_the_server() -> None:
    for sync in (False, True):
        swarm = central(ParameterServer(sync), faults=[Kill(1, 0.5)]).run(steps=5)
        assert [worker.steps for worker in swarm.nodes] == [5, 0, 5, 5]
        assert sum(swarm.nodes[0].seconds) < 5 * (1 + 4 + 4)


def test_one_more_takes_part() -> None:
    for choice in (PLAIN, ParameterServer(sync=True), ParameterServer()):
        swarm = central(choice, faults=[Join(5.0)]).run(seconds=60.0)
        assert len(swarm.nodes) == 5
        assert swarm.nodes[4].steps > 0
        assert torch.equal(swarm.vectors()[4], swarm.vectors()[0])


def test_what_does_not_exist_here_is_said_to_have_struck_nothing() -> None:
    swarm = central(PLAIN)
    assert not swarm.disconnect(1)
    assert not swarm.corrupt(1, 0.5)
    assert not swarm.kill(9)
