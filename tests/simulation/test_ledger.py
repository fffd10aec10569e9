"""The ledger: whatever the network does, the sum of all gossip copies and of the changes under way is kept."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from optim import Kind
from optim.codec import decode_over, make
from p2p.agent.swapper import Kept
from tests.simulation.swap_world import CONFIG, SwapWorld, sources

LINEAR = (Kind.PARAMETER, Kind.SIGNED)
PACE = 1.0


def ledger(world: SwapWorld, kind: Kind) -> Tensor:
    """The copies, less the changes that a responder has added and its initiator has yet to subtract."""
    total = torch.stack([world.copy(node, kind) for node in world.nodes]).sum(0)
    for responder, swapper in world.nodes.items():
        for initiator, shelf in swapper.swaps._answers._shelves.items():
            for exchange, (_, kept) in shelf.answers.items():
                assert isinstance(kept, Kept)
                if world.nodes[initiator].swaps.asking(responder, exchange) is not None:
                    subtract(world, responder, kept, kind, total)
    return total


def subtract(world: SwapWorld, responder: str, kept: Kept, kind: Kind, total: Tensor) -> None:
    shards = world.nodes[responder].shards
    offset = min(b.index for b in shards.blocks if b.kind is kind)
    codec, at = make(kept.answer.shard.codec), 0
    for i in range(kept.answer.shard.count):
        block = shards.blocks[kept.answer.shard.first + i]
        if kept.answer.accepted >> i & 1:
            size = codec.nbytes(block.elements, block.dtype)
            if block.kind is kind:
                start = 8 * (block.index - offset)
                change = decode_over(codec, kept.buffer[at : at + size], torch.empty(block.elements, dtype=block.dtype))
                total[start : start + block.elements] -= change
            at += size


def train(world: SwapWorld, rng: random.Random, expected: dict[Kind, Tensor]) -> None:
    """A local update of one node, and its meeting: the only thing that may move the sum."""
    node = rng.choice(list(world.nodes))
    swapper = world.nodes[node]
    for source in swapper.shards.sources:
        tensor, change = source.read(), rng.gauss(0, 0.1)
        assert tensor is not None
        if source.kind is Kind.NONNEGATIVE:
            tensor.mul_(0.9).add_(0.1 * change**2)
        else:
            tensor.add_(change)
            expected[source.kind] += change
    swapper.offer(1)


@pytest.mark.parametrize(
    ("codec", "swaps"),
    [("raw", 10_000), *((c, 4000) for c in ("int8", "random-k:3", "low-rank:1", "sign", "top-k:3"))],
)
def test_the_sum_is_kept_over_thousands_of_swaps(codec: str, swaps: int) -> None:
    """Five nodes; node 4's messages take many steps; connections break with requests, answers and receipts under way."""
    rng = random.Random(0)
    world = SwapWorld(
        [sources(i) for i in range(5)],
        delay=lambda sender, receiver: rng.uniform(3.0, 8.0) if sender == "4" else rng.uniform(0.01, 0.6),
        config=replace(CONFIG, codec=codec),
    )
    expected = {kind: ledger(world, kind) for kind in LINEAR}
    world.pace(PACE)

    def look() -> None:
        swapped = sum(node.swaps.tally.swapped for node in world.nodes.values())
        if swapped >= looked[-1] + 500:
            looked.append(swapped)
            for kind in LINEAR:
                assert float((ledger(world, kind) - expected[kind]).abs().max()) < 1e-9

    def trouble() -> None:
        world.break_(*rng.sample(list(world.nodes), 2))
        train(world, rng, expected)
        world.at(world.now + rng.expovariate(1.0), trouble)

    looked = [0]
    world.at(1.0, trouble)
    while looked[-1] < swaps:
        world.run(50.0, look)
        assert all(bool((world.copy(node, Kind.NONNEGATIVE) >= 0).all()) for node in world.nodes)
    assert any(float((ledger(world, k) - sum(world.copy(n, k) for n in world.nodes)).abs().max()) > 1e-6 for k in LINEAR), (
        "something was under way"
    )
    world.drain()
    for kind in LINEAR:
        total = torch.stack([world.copy(node, kind) for node in world.nodes]).sum(0)
        assert float((total - expected[kind]).abs().max()) < 1e-9
    tally = [node.swaps.tally for node in world.nodes.values()]
    assert sum(t.repeated for t in tally) > swaps / 100, "requests were repeated"
    assert sum(t.overdue for t in tally) > swaps / 100, "swaps were overdue"
    assert sum(t.declined for t in tally) > swaps / 100, "requests were declined"
    assert sum(t.moved for t in tally) == 0
    assert len(looked) > swaps / 1000


@pytest.mark.parametrize(
    ("codec", "seconds", "apart"),
    [
        ("raw", 100.0, 1e-9),
        ("random-k:3", 150.0, 1e-3),
        ("low-rank:1", 150.0, 1e-3),
        ("int4", 100.0, 1e-9),
        ("sign", 150.0, 1e-2),
        ("top-k:3", 150.0, 1e-4),
    ],
)
def test_without_local_updates_all_nodes_meet_at_the_mean(codec: str, seconds: float, apart: float) -> None:
    world = SwapWorld([sources(i) for i in range(5)], config=replace(CONFIG, codec=codec))
    mean = torch.stack([world.copy(node, Kind.PARAMETER) for node in world.nodes]).mean(0)
    world.pace(PACE)
    world.run(seconds)
    world.drain()
    assert all(float((world.copy(node, Kind.PARAMETER) - mean).abs().max()) < apart for node in world.nodes)
