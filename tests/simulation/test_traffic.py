"""What an exchange puts on the network, without a clock: messages and bytes, by node, type and partner."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import nn

from p2p.agent.post import Post
from p2p.config import LAN, ExchangeConfig
from p2p.net.messages import Answer, Ask, Message, Push, Reask, Settled
from p2p.net.physics import Line, Underlay
from p2p.net.transport import Route, Sent
from p2p.sim.compute import Paced
from p2p.sim.swarm import SimulatedSwarm

STEPS, PACE = 20, 0.1
QUIET = 1.0
"""Seconds in which swaps go on without steps, at their pace."""
PARAMETERS = 50  # of eight float64 a block: seven blocks, the last one short
STATE = 8 * PARAMETERS
BLOCK, MESSAGE = 64, 192
CONFIG = replace(LAN, exchange=ExchangeConfig(block_bytes=BLOCK, message_bytes=MESSAGE))


@dataclass
class Still:
    """Zeros that stay zeros, under SGD."""

    momentum: float = 0.0

    def model(self, node: int) -> nn.Module:
        return nn.Linear(PARAMETERS, 1, bias=False, dtype=torch.float64)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=self.momentum)

    def gradient(self, node: int, model: nn.Module) -> None:
        for p in model.parameters():
            p.grad = torch.zeros_like(p)

    def batch_loss(self, node: int, model: nn.Module) -> float:
        return 0.0

    def score(self, model: nn.Module) -> float:
        return 0.0


@dataclass
class Traffic:
    """What all nodes sent, by (node, type of message)."""

    messages: Counter[tuple[str, type]] = field(default_factory=Counter)
    payload: Counter[tuple[str, type]] = field(default_factory=Counter)
    asked: dict[tuple[str, int], int] = field(default_factory=dict)  # bytes of each request

    def note(self, node: str, message: Message, payload: memoryview | None) -> None:
        nbytes = payload.nbytes if payload is not None else 0
        self.messages[node, type(message)] += 1
        self.payload[node, type(message)] += nbytes
        if isinstance(message, Ask):
            self.asked[node, message.exchange] = nbytes

    def of(self, kind: type) -> list[int]:
        """Messages of this type, by node."""
        return [count for (_, found), count in sorted(self.messages.items(), key=str) if found is kind]

    def bytes_of(self, kind: type) -> list[int]:
        return [count for (_, found), count in sorted(self.payload.items(), key=str) if found is kind]


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    seen, answer = Traffic(), Post.answer

    def watched(self: Post, route: Route, message: Message, payload: memoryview | None = None) -> Sent | None:
        sent = answer(self, route, message, payload)
        if sent is not None:
            seen.note(self.envelope().node, message, payload)
        return sent

    monkeypatch.setattr(Post, "answer", watched)
    return seen


def run(algorithm: str, topology: str, nodes: int = 4, momentum: float = 0.0) -> SimulatedSwarm:
    return SimulatedSwarm(
        nodes,
        topology=topology,
        algorithm=algorithm,
        workload=Still(momentum),
        compute=Paced(mean=PACE),
        underlay=Underlay(1, access=Line(latency=0.001)),
        config=CONFIG,
    ).run(steps=STEPS, quiet=QUIET)


@pytest.mark.parametrize(("topology", "partners"), [("ring", 2), ("one-peer-exponential", 1), ("complete", 3)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_synchronous_round_sends_the_state_once_to_each_partner(
    traffic: Traffic, topology: str, partners: int, momentum: float
) -> None:
    run("gossip:deadline=off", topology, momentum=momentum)
    runs = 2 if momentum else 1  # parameters, and momentum if there is any
    assert traffic.of(Push) == [STEPS * partners * runs * math.ceil(STATE / MESSAGE)] * 4
    assert traffic.bytes_of(Push) == [STEPS * partners * runs * STATE] * 4
    assert not traffic.of(Ask) and not traffic.of(Answer)


def test_every_few_steps_only_where_the_algorithm_says_so(traffic: Traffic) -> None:
    run("local:period=5,deadline=off", "complete")
    assert traffic.bytes_of(Push) == [STEPS // 5 * 3 * STATE] * 4


@pytest.mark.parametrize("period", [1, 5])
def test_a_swap_sends_each_block_once_each_way(traffic: Traffic, period: int) -> None:
    """Each request is answered once, with as many bytes or none; a block asks once in a period, and receipts ride along."""
    swarm = run(f"async:period={period}", "one-peer-exponential", momentum=0.9)
    assert sum(traffic.of(Answer)) == sum(traffic.of(Ask)) == len(traffic.asked)
    assert sum(traffic.bytes_of(Answer)) == sum(traffic.bytes_of(Ask))
    most = (STEPS + QUIET / PACE) / period + 2
    blocks = 2 * math.ceil(STATE / BLOCK)
    for node in swarm.nodes:
        sent = node.agent.node
        assert 0.7 * most - 2 <= traffic.payload[sent, Ask] / (2 * STATE) <= most
        assert traffic.messages[sent, Ask] <= most * blocks
        assert traffic.messages[sent, Settled] <= traffic.messages[sent, Ask]
        assert not traffic.messages[sent, Reask] and not traffic.messages[sent, Push]


def test_messages_are_as_long_as_they_may_be(traffic: Traffic) -> None:
    run("async", "one-peer-exponential")
    asked = list(traffic.asked.values())
    assert sum(asked) / len(asked) > 0.7 * STATE / math.ceil(STATE / MESSAGE)
