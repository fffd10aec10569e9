"""One of six sends what it likes, through the real agents: what the robust rules make of it, and what the plain mean does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from p2p.agent.pusher import Pusher
from p2p.agent.rounds import Pushed
from p2p.sim.node import SimulatedNode
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging

NODES, BAD, LIE = 6, 5, 5.0  # within the gate: it is no gross value


class Liars(SimulatedSwarm):
    """Node BAD pushes LIE in every element."""

    def entered(self, node: SimulatedNode) -> None:
        super().entered(node)
        exchange = node.agent.exchange
        assert isinstance(exchange, Pusher)
        honest = exchange._push

        def push(pushed: Pushed) -> bool:
            for block in exchange.shards.blocks:
                exchange._published[pushed.round].store.piece(block).fill_(LIE)
            return honest(pushed)

        if node.index == BAD:
            exchange._push = push  # type: ignore[method-assign]


def honest(algorithm: str) -> tuple[Tensor, Tensor]:
    """The honest nodes' vectors at first and after 20 rounds."""
    work = Averaging(64)
    swarm = Liars(NODES, topology="complete", algorithm=algorithm, workload=work)
    swarm.run(steps=20)
    starts = torch.stack([next(work.model(node).parameters()).detach() for node in range(BAD)])
    return starts, swarm.vectors()[:BAD]


@pytest.mark.parametrize("rule", ["nearest", "clipped", "trimmed"])
def test_a_rule_keeps_the_honest_together_and_near_their_mean(rule: str) -> None:
    starts, ends = honest(f"gossip:deadline=off,robust={rule}")
    assert float((ends - ends.mean(0)).abs().max()) < 0.05
    assert float((ends - starts.mean(0)).square().mean().sqrt()) < 0.6


def test_the_plain_mean_follows_the_liar() -> None:
    _, ends = honest("gossip:deadline=off")
    assert float((ends - LIE).abs().max()) < 0.5
