"""The mean model: members whole or not at all, and the own model back exactly."""

import pytest
import torch
from torch import nn

from optim.codec import RAW
from p2p.state import Mean, Shards, collect


def node(value: float) -> tuple[nn.Module, Shards]:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    with torch.no_grad():
        for tensor in net.state_dict().values():
            tensor.fill_(value)
    return net, Shards(collect(net, [optimizer]), block_bytes=32, live=True)


def give(mean: Mean, shards: Shards, but: int = -1) -> None:
    for block in mean.blocks:
        if block.index != but:
            piece = torch.empty(block.elements, dtype=block.dtype)
            shards.read(block, piece)
            mean.put(block.index, piece.view(torch.uint8), RAW)


def test_the_mean_is_in_the_model_and_out_again() -> None:
    (net, own), (_, second), (_, third) = node(1), node(2), node(6)
    optimizer_state = [s.create().clone() for s in own.sources if not s.in_model]
    net[0].weight.data[0, 0] = 1 + 2**-20
    before = {key: value.clone() for key, value in net.state_dict().items()}
    mean = Mean(own)
    for member in (second, third):
        give(mean, member)
        assert mean.close()
    assert mean.count == 3
    with mean.applied():
        assert net[0].bias.tolist() == [3.0] * 4
        assert net[1].running_var.tolist() == [3.0] * 4
        assert int(net[1].num_batches_tracked) == 1
        now = [s.create() for s in own.sources if not s.in_model]
        assert all(torch.equal(a, b) for a, b in zip(now, optimizer_state, strict=True))
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


def test_the_own_model_is_back_after_an_error() -> None:
    net, own = node(1)
    mean = Mean(own)
    give(mean, node(3)[1])
    mean.close()
    with pytest.raises(RuntimeError, match="evaluation"), mean.applied():
        raise RuntimeError("evaluation")
    assert net[0].bias.tolist() == [1.0] * 4


def test_a_member_counts_whole_or_not_at_all() -> None:
    (net, own), (_, second), (bad, spoilt) = node(1), node(3), node(4)
    bad[1].running_mean[0] = torch.nan
    spoilt = Shards(spoilt.sources, block_bytes=32, live=True)
    mean = Mean(own)
    give(mean, second, but=mean.blocks[-1].index)
    assert not mean.close()
    give(mean, spoilt)
    assert not mean.close()
    give(mean, second)
    assert mean.close()
    assert mean.count == 2
    with mean.applied():
        assert net[0].bias.tolist() == [2.0] * 4


def test_only_what_is_needed_is_asked_for() -> None:
    _, own = node(1)
    asked = {own.sources[s.tensor].name for block in Mean(own).blocks for s in block.segments}
    assert {"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"} <= asked
    assert not any(name.endswith((".step", ".exp_avg", "tracked")) for name in asked)
