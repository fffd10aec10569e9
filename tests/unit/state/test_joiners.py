"""A donor's snapshot becomes a joiner's state, whole or not at all."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from optim.codec import RAW
from p2p.errors import StateError
from p2p.state import Shards, collect

Make = Callable[..., Shards]
OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.Adam(p, lr=0.01),
]


def node(
    make: Callable[[Any], torch.optim.Optimizer], seed: int, live: bool, taken: bool = True
) -> tuple[nn.Module, Any, Shards]:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 3))
    optimizer = make(net.parameters())
    return net, optimizer, Shards(collect(net, [optimizer]), block_bytes=64, live=live, taken=taken)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    optimizer.zero_grad()
    net(torch.randn(8, 6, generator=torch.Generator().manual_seed(step))).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_joiner_goes_on_exactly_where_the_donor_was(make: Any, live: bool, taken: bool) -> None:
    (net, optimizer, donor), (other, other_optimizer, joiner) = node(make, 0, live), node(make, 1, live, taken)
    for step in range(5):
        train(net, optimizer, step)
        donor.meet(step) if live else donor.publish(step)
    snapshot = donor.snapshot()
    while not snapshot.advance(3):
        pass
    for block in joiner.blocks:
        joiner.set_block(block.index, snapshot.payload(block, block), RAW, 4)
    joiner.apply()
    train(net, optimizer, 9)
    train(other, other_optimizer, 9)
    for a, b in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    if live:
        assert joiner.meet(5).touched == 0


def test_a_snapshot_does_not_change(shards_of: Make) -> None:
    model = torch.ones(20)
    shards = shards_of(model)
    snapshot = shards.snapshot()
    assert [snapshot.advance(2), snapshot.advance(1)] == [False, True]
    model.fill_(2)
    shards.meet(1)
    assert snapshot.payload(shards.blocks[0], shards.blocks[2]).view(torch.float32).tolist() == [1.0] * 20


def test_nothing_is_written_before_all_is_there(shards_of: Make) -> None:
    model = torch.zeros(20)
    shards = shards_of(model)
    data = torch.ones(8).view(torch.uint8)
    shards.set_block(0, data, RAW, 1)
    with pytest.raises(StateError, match="2 of 3 blocks"):
        shards.apply()
    shards.set_block(1, data, RAW, 1)
    shards.set_block(2, torch.tensor([1.0, torch.nan, 1, 1]).view(torch.uint8), RAW, 1)
    with pytest.raises(StateError, match="not finite: t0"):
        shards.apply()
    assert model.tolist() == [0.0] * 20
    shards.set_block(2, data[:16], RAW, 1)
    shards.apply()
    assert model.tolist() == [1.0] * 20


def test_swaps_during_the_download_reach_the_model(shards_of: Make) -> None:
    model = torch.zeros(2)
    shards = shards_of(model)
    shards.set_block(0, torch.ones(2).view(torch.uint8), RAW, 1)
    shards.settle(0, torch.tensor([-1.0, 0.0]).view(torch.uint8), RAW, 0.5, 1)
    shards.apply()
    assert model.tolist() == [2.0, 1.0]


def swap_one(shards: Shards, how: str) -> None:
    if how == "answers":
        shards.answer(0, torch.full((8,), 5.0).view(torch.uint8), RAW, 0.5, torch.empty(32, dtype=torch.uint8), 1)
    elif how == "settles":
        shards.settle(0, torch.full((8,), -2.0).view(torch.uint8), RAW, 0.5, 1)


@pytest.mark.parametrize("update", [0.25, float("nan")])
@pytest.mark.parametrize("how", ["answers", "settles", "rests"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_after_it_a_joiner_meets_as_who_was_there_all_the_time(
    shards_of: Make, dtype: torch.dtype, how: str, update: float
) -> None:
    values = torch.arange(8, dtype=dtype)
    models = [values.clone(), torch.zeros(8, dtype=dtype)]
    there, joined = (shards_of(model) for model in models)
    there.meet(1)
    joined.set_block(0, values.float().view(torch.uint8), RAW, 1)
    joined.apply()
    for shards, model in ((there, models[0]), (joined, models[1])):
        swap_one(shards, how)
        model += update
        shards.meet(2)
        model.copy_(torch.full((8,), 3.0))
        shards.meet(3)
    copies = [torch.empty(8), torch.empty(8)]
    for shards, copy in ((there, copies[0]), (joined, copies[1])):
        shards.read(shards.blocks[0], copy)
    assert torch.equal(*models) and torch.equal(*copies)
