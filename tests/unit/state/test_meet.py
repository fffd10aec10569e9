"""Trainer and agent meet: the local update joins the copy, gossip joins the model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from optim.codec import RAW
from optim.kinds import Kind
from p2p.state import Shards, collect

Make = Callable[..., Shards]


def copy_of(shards: Shards) -> Tensor:
    """The gossip copy, flat: of one run."""
    pieces = [torch.empty(block.elements, dtype=block.dtype) for block in shards.blocks]
    for block, piece in zip(shards.blocks, pieces, strict=True):
        shards.read(block, piece)
    return torch.cat(pieces)


def bring(shards: Shards, change: Tensor) -> None:
    """Gossip adds `change` (flat) to the copy: one run of a linear kind."""
    for block in shards.blocks:
        data = (-change[block.start : block.stop]).to(block.dtype).view(torch.uint8)
        assert shards.settle(block.index, data, RAW, 1.0, 1).finite


def show(shards: Shards, index: int, values: list[float], dtype: torch.dtype = torch.float32, step: int = 1) -> None:
    """Gossip settles one block of a convex kind at weight 1: the copy becomes `values`."""
    assert shards.settle(index, torch.tensor(values, dtype=dtype).view(torch.uint8), RAW, 1.0, step).finite


STRIDES = [
    lambda shape: torch.zeros(shape).double(),
    lambda shape: torch.zeros(shape[::-1]).double().permute(tuple(reversed(range(len(shape))))),
    lambda shape: torch.zeros([2 * n for n in shape]).double()[tuple(slice(None, None, 2) for _ in shape)],
]
layouts = st.lists(st.tuples(st.lists(st.integers(1, 5), max_size=3), st.sampled_from(STRIDES)), min_size=1, max_size=6)


@given(layouts, st.integers(1, 9).map(lambda n: 8 * n), st.integers(0, 2**32 - 1))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shapes_and_strides_meet_like_one_flat_vector(
    shards_of: Make, layout: list[Any], block_bytes: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    tensors = [make(shape) for shape, make in layout]
    sizes = [t.numel() for t in tensors]

    def write(flat: np.ndarray) -> None:
        for tensor, part in zip(tensors, np.split(flat, np.cumsum(sizes)[:-1]), strict=True):
            tensor.copy_(torch.from_numpy(part).view(tensor.shape))

    def flat() -> np.ndarray:
        return np.concatenate([t.contiguous().view(-1).numpy() for t in tensors])

    write(rng.normal(size=sum(sizes)))
    shards = shards_of(*tensors, block_bytes=block_bytes)
    copy, last = flat(), flat()
    for step in range(4):
        model, brought = flat() + rng.normal(size=copy.size), rng.normal(size=copy.size)
        write(model)
        if step != 2:
            bring(shards, torch.from_numpy(brought))
            copy = copy - -brought
        meeting = shards.meet(step)
        expected = model if step == 2 else copy + (model - last)
        assert np.array_equal(flat(), expected)
        assert np.array_equal(copy_of(shards).numpy(), expected)
        if step != 2:
            assert meeting.touched == len(shards.blocks)
        copy, last = expected, expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_are_rounded_once_and_lose_nothing(shards_of: Make, dtype: torch.dtype) -> None:
    """Changes too small for the model's dtype add up in the copy, also over meets that gossip left alone."""
    model = torch.ones(4, dtype=dtype)
    shards = shards_of(model)
    small = float(torch.finfo(dtype).eps) / 8
    for step in range(16):
        bring(shards, torch.full((4,), small))
        shards.meet(2 * step)
        shards.meet(2 * step + 1)
    assert torch.equal(copy_of(shards), torch.full((4,), 1 + 16 * small))
    assert torch.equal(model, torch.full((4,), 1 + 16 * small).to(dtype))
    model += 1
    shards.meet(100)
    assert torch.equal(copy_of(shards), torch.full((4,), 2 + 16 * small))


def test_second_moments_grow_by_adding_and_shrink_by_scaling(shards_of: Make) -> None:
    model = torch.tensor([4.0, 4.0, 0.0, 0.0, 4.0, 4.0])
    shards = shards_of(model, kind=Kind.NONNEGATIVE)
    show(shards, 0, [1.0, 1.0, 0.0, 3.0, 0.0, 8.0])
    model.copy_(torch.tensor([6.0, 2.0, 5.0, 0.0, 3.0, 0.0]))
    shards.meet(1)
    assert model.tolist() == [3.0, 0.5, 5.0, 3.0, 0.0, 0.0]
    assert copy_of(shards).tolist() == model.tolist()


@given(st.lists(st.tuples(*[st.floats(0, 2.0**60, width=32)] * 3), min_size=1, max_size=8))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_second_moments_are_never_negative(shards_of: Make, rows: list[tuple[float, float, float]]) -> None:
    old, new, theirs = (torch.tensor(column) for column in zip(*rows, strict=True))
    model = old.clone()
    shards = shards_of(model, kind=Kind.NONNEGATIVE)
    for weight in (0.125, 0.5):
        shards.settle(0, theirs.view(torch.uint8), RAW, weight, 1)
        model.copy_(new)
        shards.meet(1)
        assert (model >= 0).all()
        assert torch.isfinite(model).all()


def test_counters_take_the_larger(shards_of: Make) -> None:
    model = torch.tensor([5.0, 5.0])
    shards = shards_of(model, kind=Kind.COUNTER)
    show(shards, 0, [9.0, 3.0])
    model += 1
    shards.meet(6)
    assert model.tolist() == [9.0, 6.0]
    model.zero_()  # the user loaded another state
    shards.meet(7)
    assert copy_of(shards).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("own_change", "own_step", "their_step", "wins"),
    [(False, 5, 1, True), (True, 5, 9, True), (True, 9, 5, False), (True, 5, 5, False), (False, 0, 0, False)],
)
def test_integers_take_the_newest(shards_of: Make, own_change: bool, own_step: int, their_step: int, wins: bool) -> None:
    model = torch.tensor([1, 2])
    shards = shards_of(model, kind=Kind.NEWEST)
    show(shards, 0, [70, 80], torch.int64, their_step)
    if own_change:
        model += 10
    own = model.tolist()
    shards.meet(own_step)
    assert model.tolist() == ([70, 80] if wins else own)
    assert copy_of(shards).tolist() == model.tolist()


def test_a_block_that_gossip_left_alone_is_not_written(shards_of: Make) -> None:
    model = torch.randn(40)
    shards = shards_of(model)
    version = model._version
    model[3] = 5
    assert shards.meet(1).touched == 0
    assert model._version == version + 1
    bring(shards, torch.zeros(40))
    assert shards.meet(2).touched == 5
    assert model._version > version + 1


def test_a_model_that_is_not_finite_stays_out_of_the_copy(shards_of: Make) -> None:
    first, second = torch.ones(8), torch.ones(4)
    shards = shards_of(first, second)
    first[2] = torch.nan
    second[0] = torch.inf
    bring(shards, torch.ones(12))
    assert shards.meet(1).nonfinite == ("t0", "t1")
    assert copy_of(shards).tolist() == [2.0] * 12
    first.fill_(3)
    second.fill_(3)
    assert shards.meet(2).nonfinite == ()
    assert copy_of(shards).tolist() == first.tolist() + second.tolist() == [4.0] * 12


def test_huge_finite_values_are_finite(shards_of: Make) -> None:
    shards = shards_of(torch.full((8,), 3e38))
    assert shards.meet(1).nonfinite == ()


# --- with optimizers -----------------------------------------------------------------------------------------------

OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda p: torch.optim.SGD(p, lr=0.1),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9),
]


def node(make: Callable[[Any], torch.optim.Optimizer], dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 3)).to(dtype)
    return net, make(net.parameters())


def train(net: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(step)).to(next(net.parameters()).dtype)
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_swarm_of_one_is_bit_identical(make: Any, dtype: torch.dtype) -> None:
    (plain, plain_optimizer), (net, optimizer) = node(make, dtype), node(make, dtype)
    shards = Shards(collect(net, [optimizer]), block_bytes=64, live=True)
    for step in range(10):
        train(plain, plain_optimizer, step)
        train(net, optimizer, step)
        assert shards.meet(step).touched == 0
    for a, b in zip(plain.state_dict().values(), net.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_optimizer_state_is_made_only_for_what_is_not_zero() -> None:
    net, optimizer = node(lambda p: torch.optim.Adam(p, lr=0.01))
    shards = Shards(collect(net, [optimizer]), block_bytes=1 << 16, live=True)
    names = [s.name for s in shards.sources]
    signed = next(b for b in shards.blocks if b.kind is Kind.MOMENTS)
    change = torch.zeros(signed.elements)
    shards.settle(signed.index, change.view(torch.uint8), RAW, 0.5, 1)
    shards.meet(0)
    assert not optimizer.state
    segment = next(s for s in signed.segments if names[s.tensor] == "optimizer.3.bias.exp_avg")
    change[segment.at] = -2.0
    shards.settle(signed.index, change.view(torch.uint8), RAW, 0.5, 1)
    shards.meet(1)
    parameter = net.get_parameter("3.bias")
    assert list(optimizer.state) == [parameter]
    assert optimizer.state[parameter]["exp_avg"].tolist() == [2.0, 0.0, 0.0]
    train(net, optimizer, 0)
    assert float(optimizer.state[parameter]["step"]) == 1
    assert float(optimizer.state[parameter]["exp_avg"][0]) != 0
    shards.meet(2)


def test_nothing_large_is_allocated_once_warm() -> None:
    net = nn.Sequential(nn.Linear(700, 700), nn.Linear(700, 700), nn.LayerNorm(700))
    net[1].weight.data = net[1].weight.data.t()  # passes through a stand-in
    optimizer = torch.optim.Adam(net.parameters())
    sum(p.sum() for p in net.parameters()).backward()
    optimizer.step()
    shards = Shards(collect(net, [optimizer]), block_bytes=256 * 1024, live=True)
    codec_room = torch.zeros(256 * 1024, dtype=torch.uint8)

    def step() -> None:
        for block in shards.blocks:
            room = codec_room[: block.nbytes]
            shards.stage(block.index, 1, RAW, room)
            shards.answer(block.index, room, RAW, 0.5, room, 1)
            shards.settle(block.index, room, RAW, 0.5, 1)
        shards.meet(1)

    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as prof:
        step()
    assert max(event.self_cpu_memory_usage for event in prof.key_averages()) < 1 << 20
    assert sum(max(0, event.self_cpu_memory_usage) for event in prof.events()) < 4 << 20
