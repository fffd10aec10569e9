"""Synchronous gossip against numpy, through the whole agent: what comes out is W (X - lr G), whatever the network does."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from torch import nn

import topology
from p2p.agent.pusher import Pusher
from p2p.config import LAN, Config, ExchangeConfig
from p2p.net.physics import Line, Underlay
from p2p.sim.faults import Disconnect
from p2p.sim.node import SimulatedNode
from p2p.sim.swarm import SimulatedSwarm
from topology import Member

Matrix = np.ndarray

DIM = 37  # of eight float64 a block: five blocks, the last one short
LR, MOMENTUM = 0.1, 0.9
WAITING = "gossip:deadline=off"
SMALL = replace(LAN, exchange=ExchangeConfig(block_bytes=64, message_bytes=128))
JITTER = Line(latency=0.05, jitter=0.5)
"""Messages of different senders overtake each other at will."""


class Vector(nn.Module):
    def __init__(self, value: Matrix) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.from_numpy(value.copy()))


class Quadratic:
    """f_i(x) = x' A_i x / 2 - b_i' x: each node has its own. Without `learns`, its gradient is 0."""

    def __init__(self, nodes: int, momentum: float = 0.0, learns: bool = True) -> None:
        rng = np.random.default_rng(nodes)
        roots = rng.standard_normal((nodes, DIM, DIM)) / DIM**0.5
        self.a = roots @ roots.transpose(0, 2, 1) / 2
        self.b = rng.standard_normal((nodes, DIM))
        self.start = rng.standard_normal((nodes, DIM))
        self.momentum, self.learns = momentum, learns

    def gradients(self, x: Matrix) -> Matrix:
        """Row i: node i's at x[i]."""
        return np.einsum("nij,nj->ni", self.a, x) - self.b if self.learns else np.zeros_like(x)

    def model(self, node: int) -> nn.Module:
        return Vector(self.start[node])

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=LR, momentum=self.momentum)

    def gradient(self, node: int, model: nn.Module) -> None:
        x = vector(model)
        model.x.grad = torch.from_numpy(self.a[node] @ x - self.b[node] if self.learns else 0 * x)

    def batch_loss(self, node: int, model: nn.Module) -> float:
        x = vector(model)
        return float(x @ self.a[node] @ x / 2 - self.b[node] @ x)

    def score(self, model: nn.Module) -> float:
        return float(np.abs(vector(model)).max())


@dataclass
class Uneven:
    """Step times between 0.1 and 1 s, at random."""

    seed: int = 0

    def seconds(self, node: int, step: int) -> float:
        return random.Random(f"{self.seed}/{node}/{step}").uniform(0.1, 1.0)


def vector(model: nn.Module) -> Matrix:
    found: Matrix = model.x.detach().numpy().copy()
    return found


def pusher(node: SimulatedNode) -> Pusher:
    assert isinstance(node.agent.exchange, Pusher)
    return node.agent.exchange


def swarm_of(
    work: Quadratic,
    graph: str,
    *,
    algorithm: str = WAITING,
    seed: int = 0,
    line: Line = JITTER,
    config: Config = SMALL,
    faults: Sequence[Disconnect] = (),
) -> SimulatedSwarm:
    return SimulatedSwarm(
        len(work.start),
        seed=seed,
        topology=graph,
        algorithm=algorithm,
        workload=work,
        compute=Uneven(seed),
        underlay=Underlay(seed, inside=line),
        config=config,
        faults=faults,
    )


def models(swarm: SimulatedSwarm) -> Matrix:
    return np.stack([vector(node.model) for node in swarm.nodes])


def assert_nobody_was_skipped(swarm: SimulatedSwarm) -> None:
    for node in swarm.nodes:
        assert [report.skipped for report in node.reports] == [()] * len(node.reports)
        tally = pusher(node).rounds.tally
        assert (tally.skipped, tally.late, tally.unequal) == (0, 0, 0)


def mixing(swarm: SimulatedSwarm, round: int) -> Matrix:
    """W of a round, in the order of the nodes' numbers."""
    members = [Member(node.agent.node) for node in swarm.nodes]
    ordered = sorted(members)
    rows = swarm.setting.topology.mixing(ordered, round).rows
    place = [ordered.index(member) for member in members]
    return np.array([[rows[i].get(j, 0.0) for j in place] for i in place])


def recursion(swarm: SimulatedSwarm, steps: int, mixes_momentum: bool = True) -> Matrix:
    """X <- W (X - lr M) with M <- mu M + G, mixed by W as well, or not."""
    work = swarm.setting.workload
    assert isinstance(work, Quadratic)
    x, m = work.start, np.zeros_like(work.start)
    for round in range(steps):
        w = mixing(swarm, round)
        m = work.momentum * m + work.gradients(x)
        x = w @ (x - LR * m)
        m = w @ m if mixes_momentum else m
    return x


def greatest(difference: Matrix) -> float:
    return float(np.abs(difference).max())


@pytest.mark.parametrize(("n", "graph"), [(4, "ring"), (5, "ring"), (6, "exponential"), (8, "one-peer-exponential")])
def test_gossip_is_the_recursion(n: int, graph: str) -> None:
    swarm = swarm_of(Quadratic(n), graph).run(steps=20)
    assert_nobody_was_skipped(swarm)
    assert greatest(models(swarm) - recursion(swarm, 20)) < 1e-10
    assert greatest(models(swarm) - recursion(swarm, 19)) > 1e-3, "the recursion tells one step from the next"


@pytest.mark.parametrize("shared", [True, False])
def test_momentum_is_mixed_by_the_same_row_or_stays_local(shared: bool) -> None:
    algorithm = WAITING if shared else f"{WAITING},momentum=local"
    swarm = swarm_of(Quadratic(4, MOMENTUM), "ring", algorithm=algorithm).run(steps=20)
    assert_nobody_was_skipped(swarm)
    assert greatest(models(swarm) - recursion(swarm, 20, shared)) < 1e-10
    assert greatest(models(swarm) - recursion(swarm, 20, not shared)) > 1e-3


def test_three_rounds_of_one_peer_exponential_are_the_exact_mean_of_eight() -> None:
    work = Quadratic(8, learns=False)
    swarm = swarm_of(work, "one-peer-exponential").run(steps=3)
    assert_nobody_was_skipped(swarm)
    assert greatest(models(swarm) - work.start.mean(0)) < 1e-12


def test_two_seeded_runs_are_bit_identical() -> None:
    first, second = (swarm_of(Quadratic(4), "ring", seed=3).run(steps=12) for _ in range(2))
    assert models(first).tobytes() == models(second).tobytes()
    assert first.journal.lines == second.journal.lines


def test_the_order_of_arrival_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrivals are mixed in neighbour order: other delays and other step times lead to the same bits."""
    pushed = Pusher._pushed
    seen: list[str] = []

    def watch(self: Pusher, sender: str, *rest: object) -> None:
        seen.append(sender)
        pushed(self, sender, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Pusher, "_pushed", watch)
    orders, found = set(), set()
    for seed in range(4):
        seen.clear()
        swarm = swarm_of(Quadratic(5), "complete", seed=0)
        swarm.network.underlay = Underlay(seed, inside=JITTER)
        swarm.setting.compute.seed = seed  # type: ignore[attr-defined]
        found.add(models(swarm.run(steps=8)).tobytes())
        orders.add(tuple(seen))
    assert len(orders) == 4, "the networks did differ"
    assert len(found) == 1


def test_a_model_many_times_the_credit_is_pushed_whole() -> None:
    thin = replace(LAN, exchange=ExchangeConfig(block_bytes=64, message_bytes=256, credit_start=64, credit_max=128))
    swarm = swarm_of(Quadratic(4), "ring", config=thin).run(steps=5)
    assert_nobody_was_skipped(swarm)
    assert greatest(models(swarm) - recursion(swarm, 5)) < 1e-10


def test_connections_that_break_stop_nobody() -> None:
    """Pushes and receipts are lost, with the deadline off: a round goes on until all has arrived, so nothing is missing."""
    rng = random.Random(1)
    faults = [Disconnect(rng.randrange(4), 0.5 + 0.4 * i) for i in range(40)]
    swarm = swarm_of(Quadratic(4), "ring", line=Line(latency=0.2), faults=faults).run(steps=20)
    tallies = [pusher(node).rounds.tally for node in swarm.nodes]
    assert [node.steps for node in swarm.nodes] == [20] * 4
    assert sum(tally.lost for tally in tallies) > 10, "the breaks did hit something"
    assert sum(tally.skipped for tally in tallies) == 0


# --- the deadline ------------------------------------------------------------------------------------------------


@dataclass
class Timed:
    """One second a step, but for those given."""

    others: Mapping[tuple[int, int], float] = field(default_factory=dict)  # (node, step) -> seconds
    slow: Callable[[int], float] = lambda node: 1.0

    def seconds(self, node: int, step: int) -> float:
        return self.others.get((node, step), self.slow(node))


class Opposite(Quadratic):
    """Two nodes pull with constant gradients of 1 and -1: one swap short, and they come apart."""

    def gradients(self, x: Matrix) -> Matrix:
        return np.stack([np.full(DIM, 1.0), np.full(DIM, -1.0)])

    def gradient(self, node: int, model: nn.Module) -> None:
        model.x.grad = torch.from_numpy(self.gradients(self.start)[node])


def test_late_blocks_join_with_the_state_of_their_round() -> None:
    """The deadline skips a late neighbour; its blocks then make the change that they would have made."""
    work = Opposite(2)
    work.start[:] = 0.0
    swarm = SimulatedSwarm(
        2,
        topology="complete",
        algorithm="gossip",
        workload=work,
        compute=Timed({(1, 3): 2.0, (1, 4): 0.2}),
        underlay=Underlay(inside=Line(latency=0.01)),
        config=SMALL,
    ).run(steps=6)
    name = swarm.nodes[1].agent.node[:10]
    assert [report.skipped for report in swarm.nodes[0].reports] == [(), (), (), (name,), (), ()]
    assert pusher(swarm.nodes[0]).rounds.tally.late == 3, "messages, of five blocks"
    assert greatest(models(swarm)) < 1e-12, "the sum of both has not moved, and both have met again"


def test_a_slow_node_is_skipped_and_named_and_the_others_are_not_held_up() -> None:
    swarm = SimulatedSwarm(
        4,
        topology="complete",
        algorithm="gossip",
        workload=Quadratic(4),
        compute=Timed(slow=lambda node: 20.0 if node == 2 else 1.0),
        underlay=Underlay(inside=Line(latency=0.01)),
        config=SMALL,
    ).run(seconds=100.0)
    slow = swarm.nodes[2].agent.node[:10]
    for i in (0, 1, 3):
        node = swarm.nodes[i]
        assert node.steps > 60, "of 100 s, most are their own"
        assert node.reports[-1].slow == node.reports[-1].skipped == (slow,)
    assert {seconds < 2.0 for seconds in swarm.nodes[0].seconds[3:]} == {True}


def test_without_a_deadline_everybody_waits_for_the_slow_one() -> None:
    swarm = SimulatedSwarm(
        4,
        topology="complete",
        algorithm=WAITING,
        workload=Quadratic(4),
        compute=Timed(slow=lambda node: 20.0 if node == 2 else 1.0),
        config=SMALL,
    ).run(steps=5)
    assert_nobody_was_skipped(swarm)
    assert greatest(models(swarm) - recursion(swarm, 5)) < 1e-10
    assert all(19.0 <= seconds <= 21.0 for node in swarm.nodes for seconds in node.seconds)


def test_the_world_is_what_it_seems() -> None:
    swarm = swarm_of(Quadratic(4), "ring").run(steps=1)
    assert [block.elements for block in swarm.nodes[0].shards.blocks] == [8, 8, 8, 8, 5]
    assert np.array_equal(mixing(swarm, 0).sum(0), np.ones(4))
    assert topology.spec_of(swarm.setting.topology) == "ring"
