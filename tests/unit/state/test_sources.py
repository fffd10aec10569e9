"""What is shared, under which name and kind, and where it is when the user replaces it."""

import copy
import logging
from typing import Any

import pytest
import torch
from torch import nn

from optim.codec import RAW
from optim.kinds import Kind
from p2p.errors import StateError
from p2p.state import Shards, collect


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 4, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(3, 4, bias=False)
        self.out.weight = self.embed.weight
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.empty = nn.Parameter(torch.ones(0, 3))
        self.register_buffer("mask", torch.ones(2, dtype=torch.bool), persistent=False)
        self.register_buffer("scale", torch.ones(()), persistent=False)


def listing(sources: Any) -> list[tuple[str, str]]:
    return [(s.name, s.kind.name) for s in sources]


MODEL = [
    ("embed.weight", "PARAMETER"), ("norm.weight", "PARAMETER"), ("norm.bias", "PARAMETER"),
    ("mask", "NEWEST"), ("scale", "BUFFER"),
    ("norm.running_mean", "BUFFER"), ("norm.running_var", "NONNEGATIVE"), ("norm.num_batches_tracked", "NEWEST"),
]  # fmt: skip


def test_a_model_alone() -> None:
    assert listing(collect(Net(), [])) == MODEL


def test_adam() -> None:
    net = Net()
    sources = collect(net, [torch.optim.Adam(net.parameters())])
    state = [("step", "COUNTER"), ("exp_avg", "SIGNED"), ("exp_avg_sq", "NONNEGATIVE")]
    expected = [(f"optimizer.{p}.{key}", kind) for p in ("embed.weight", "norm.weight", "norm.bias") for key, kind in state]
    assert listing(sources) == MODEL + expected
    assert listing(collect(net, [torch.optim.Adam(net.parameters())], state=False)) == MODEL
    assert [s.in_model for s in sources] == [True] * len(MODEL) + [False] * len(expected)


def test_several_optimizers_and_groups() -> None:
    net = Net()
    groups = [{"params": [net.embed.weight], "momentum": 0.9}, {"params": [net.norm.weight]}]
    optimizers = [torch.optim.SGD(groups, lr=0.1), torch.optim.SGD([net.norm.bias], lr=0.1, momentum=0.5)]
    assert listing(collect(net, optimizers))[len(MODEL) :] == [
        ("optimizer.0.embed.weight.momentum_buffer", "SIGNED"),
        ("optimizer.1.norm.bias.momentum_buffer", "SIGNED"),
    ]


def test_an_unknown_optimizer_stays_local_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Own(torch.optim.Adam):
        pass

    net = Net()
    with caplog.at_level(logging.WARNING, "starlings"):
        assert listing(collect(net, [Own(net.parameters())])) == MODEL
    assert [r.getMessage() for r in caplog.records] == ["the state of Own stays local: its kinds are not known"]


def test_lbfgs_shares_parameters_only_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    net = nn.Linear(2, 2)
    assert listing(collect(net, [torch.optim.LBFGS(net.parameters())])) == [("weight", "PARAMETER"), ("bias", "PARAMETER")]
    assert not caplog.records


def test_a_compiled_model_has_the_same_names() -> None:
    net = Net()
    assert listing(collect(torch.compile(net, backend="eager"), [])) == MODEL  # type: ignore[arg-type]


def test_tensors_tied_by_their_memory_count_once() -> None:
    net = nn.Module()
    net.a = nn.Parameter(torch.ones(2, 3))
    net.b = nn.Parameter(net.a.data)
    net.register_buffer("c", net.a.data)
    assert listing(collect(net, [])) == [("a", "PARAMETER")]


def test_views_of_one_storage_that_do_not_overlap_are_fine() -> None:
    whole = torch.zeros(4, 6)
    net = nn.Module()
    net.left, net.right, net.even = nn.Parameter(whole[:, :2]), nn.Parameter(whole[:, 4:]), nn.Parameter(whole[::2, 2:4])
    assert len(collect(net, [])) == 3


@pytest.mark.parametrize("second", [lambda w: w[1:3], lambda w: w[:, 1], lambda w: w.view(-1), lambda w: w.t()])
def test_partly_overlapping_tensors_are_refused(second: Any) -> None:
    whole = torch.zeros(4, 6)
    net = nn.Module()
    net.a, net.b = nn.Parameter(whole), nn.Parameter(second(whole))
    with pytest.raises(StateError, match="b overlaps another shared tensor"):
        collect(net, [])


def test_an_expanded_tensor_is_refused() -> None:
    net = nn.Module()
    net.register_buffer("wide", torch.ones(1, 3).expand(2, 3))
    with pytest.raises(StateError, match=r"wide is an expanded view.*register wide.contiguous\(\)"):
        collect(net, [])
    net.register_buffer("wide", torch.arange(3).expand(1, 3))
    assert len(collect(net, [])) == 1


def test_what_cannot_be_mixed(caplog: pytest.LogCaptureFixture) -> None:
    net = nn.Module()
    net.register_buffer("rope", torch.ones(2, dtype=torch.complex64))
    assert collect(net, []) == []
    assert "buffer rope stays local" in caplog.text
    net.p = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(StateError, match=r"p is torch.complex64"):
        collect(net, [])


def adam() -> tuple[nn.Linear, torch.optim.Adam]:
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    return net, torch.optim.Adam(net.parameters(), lr=0.1)


def train(net: nn.Linear, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    net(torch.ones(1, 3)).square().sum().backward()
    optimizer.step()


def test_replaced_tensors_are_found_anew() -> None:
    net, optimizer = adam()
    train(net, optimizer)
    shards = Shards(collect(net, [optimizer]), block_bytes=64, live=True)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    stale = net.weight.data
    net.weight.data = torch.full((2, 3), 7.0)
    shards.meet(1)
    for block in shards.blocks:
        minus = torch.full((block.elements,), -1.0).view(torch.uint8)
        shards.settle(block.index, minus, RAW, 1.0, 1)
    before = stale.clone()
    net.weight.data = net.weight.data + 2
    shards.meet(3)
    assert torch.equal(stale, before)
    assert torch.equal(net.weight.detach(), torch.full((2, 3), 10.0))


def test_a_replacement_of_another_shape_is_refused_by_name() -> None:
    net, optimizer = adam()
    shards = Shards(collect(net, [optimizer]), block_bytes=64, live=True)
    net.weight.data = torch.zeros(2, 4)
    with pytest.raises(StateError, match=r"weight is now torch.float32 \(2, 4\)"):
        shards.meet(1)


def test_state_that_does_not_exist_yet() -> None:
    net, optimizer = adam()
    source = next(s for s in collect(net, [optimizer]) if s.name == "optimizer.weight.exp_avg")
    assert source.read() is None
    assert len(optimizer.state) == 0
    created = source.create()
    assert created is optimizer.state[net.weight]["exp_avg"] is source.read()
    assert set(optimizer.state[net.weight]) == {"step", "exp_avg", "exp_avg_sq"}
    assert source.kind is Kind.SIGNED
