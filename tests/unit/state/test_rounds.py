"""Synchronous rounds against W @ X in numpy, bit for bit."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from optim.codec import BFLOAT16, RAW
from optim.kinds import Kind
from p2p.errors import StateError
from p2p.state import Part, Published, Shards

Make = Callable[..., Shards]

W = np.array([[0.5, 0.25, 0.25, 0], [0.25, 0.5, 0, 0.25], [0.25, 0, 0.5, 0.25], [0, 0.25, 0.25, 0.5]])


def piece(published: Published, shards: Shards, index: int) -> Tensor:
    return published.payload(shards.blocks[index], shards.blocks[index])


def part(weight: float, values: list[float], step: int = 1, dtype: torch.dtype = torch.float32) -> Part:
    return Part(weight, torch.tensor(values, dtype=dtype).view(torch.uint8), RAW, step)


@pytest.mark.parametrize("block_bytes", [8, 64, 4096])
@pytest.mark.parametrize("strided", [False, True])
def test_a_round_is_the_row_of_the_mixing(shards_of: Make, block_bytes: int, strided: bool) -> None:
    rng = np.random.default_rng(0)
    models = [torch.from_numpy(rng.normal(size=(5, 4))) for _ in range(4)]
    if strided:
        models = [m.t().contiguous().t() for m in models]
    nodes = [shards_of(m, block_bytes=block_bytes, live=False) for m in models]
    for step in range(4):
        x = np.stack([m.numpy().copy() for m in models])
        published = [n.publish(step) for n in nodes]
        for i, node in enumerate(nodes):
            for b in range(len(node.blocks)):
                parts = [Part(W[i, j], piece(published[j], node, b), RAW, step) for j in range(4) if j != i and W[i, j]]
                differences = node.combine(b, W[i, i], parts, published[i])
                assert all(d.finite for d in differences)
            node.flush()
        for i in range(4):
            expected = x[i] * W[i, i]
            for j in range(4):
                if j != i and W[i, j]:
                    expected += x[j] * W[i, j]
            assert np.array_equal(models[i].numpy(), expected)


def test_the_distance_of_each_part(shards_of: Make) -> None:
    node = shards_of(torch.zeros(2), live=False)
    differences = node.combine(0, 0.5, [part(0.25, [3, 4]), part(0.25, [0, 1])], node.publish(1))
    assert [d.squared for d in differences] == [25.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_are_rounded_once(shards_of: Make, dtype: torch.dtype) -> None:
    model = torch.full((1,), 1.0, dtype=dtype)
    eps = float(torch.finfo(dtype).eps)
    node = shards_of(model, live=False)
    node.combine(0, 0.5, [part(0.25, [1 + eps]), part(0.25, [1 + 2 * eps])], node.publish(1))
    assert float(model) == 1 + eps  # 1 + 0.75 eps, rounded; each sum by itself would have stayed at 1


def test_counters_and_integers_in_a_round(shards_of: Make) -> None:
    steps, batches = torch.tensor([4.0]), torch.tensor([10])
    counters, integers = shards_of(steps, kind=Kind.COUNTER, live=False), shards_of(batches, kind=Kind.NEWEST, live=False)
    counters.combine(0, 0.5, [part(0.25, [9.0]), part(0.25, [7.0])], counters.publish(4))
    assert steps.tolist() == [9.0]
    published = integers.publish(4)
    integers.combine(0, 0.5, [part(0.25, [20], 6, torch.int64), part(0.25, [30], 5, torch.int64)], published)
    assert batches.tolist() == [20]
    integers.late(0, part(0.25, [40], 4, torch.int64), published)
    assert batches.tolist() == [20]
    integers.late(0, part(0.25, [50], 7, torch.int64), published)
    assert batches.tolist() == [50]


def test_a_part_that_is_not_finite_gives_its_weight_to_the_own_value(shards_of: Make) -> None:
    model = torch.tensor([4.0, 4.0])
    node = shards_of(model, live=False)
    differences = node.combine(0, 0.5, [part(0.25, [torch.nan, 0]), part(0.25, [8, 8])], node.publish(1))
    assert [d.nonfinite for d in differences] == [("t0",), ()]
    assert model.tolist() == [5.0, 5.0]


def test_an_own_value_that_is_not_finite_is_named(shards_of: Make) -> None:
    node = shards_of(torch.ones(3), torch.tensor([torch.inf]), live=False)
    assert node.publish(1).nonfinite == ("t1",)


@pytest.mark.parametrize("strided", [False, True])
def test_a_late_part_adds_the_change_of_its_round(shards_of: Make, strided: bool) -> None:
    model = torch.zeros(2, 3)
    model = model.t().contiguous().t() if strided else model
    node = shards_of(model, live=False)
    model.fill_(2)
    first = node.publish(1)
    node.combine(0, 1.0, [], first)
    node.flush()
    model.fill_(10)
    node.publish(2)
    assert node.late(0, part(0.25, [6.0] * 6), first).squared == 96.0
    assert model.tolist() == [[11.0] * 3] * 2
    assert not node.late(0, part(0.25, [torch.nan] * 6), first).finite
    assert model.tolist() == [[11.0] * 3] * 2
    node.publish(3)
    with pytest.raises(StateError, match="round 1 was published 2 rounds ago"):
        node.late(0, part(0.25, [6.0] * 6), first)


def test_late_second_moments_and_counters(shards_of: Make) -> None:
    moments, steps = torch.tensor([4.0, 4.0]), torch.tensor([3.0])
    node, counters = shards_of(moments, kind=Kind.NONNEGATIVE, live=False), shards_of(steps, kind=Kind.COUNTER, live=False)
    published = node.publish(1)
    moments.copy_(torch.tensor([1.0, 1.0]))
    node.late(0, part(0.5, [0.0, 8.0]), published)
    assert moments.tolist() == [0.5, 3.0]
    counters.late(0, part(0.5, [8.0]), counters.publish(1))
    assert steps.tolist() == [8.0]


def test_a_published_state_lasts_one_more_round(shards_of: Make) -> None:
    model = torch.zeros(4)
    node = shards_of(model, live=False)
    model.fill_(1)
    first = node.publish(1)
    model.fill_(2)
    second = node.publish(2)
    assert piece(first, node, 0).view(torch.float32).tolist() == [1.0] * 4
    assert piece(second, node, 0).view(torch.float32).tolist() == [2.0] * 4


def test_parts_may_be_coded(shards_of: Make) -> None:
    model = torch.zeros(2)
    node = shards_of(model, live=False)
    data = torch.zeros(4, dtype=torch.uint8)
    BFLOAT16.encode(torch.tensor([4.0, 8.0]), data)
    node.combine(0, 0.5, [Part(0.5, data, BFLOAT16, 1)], node.publish(1))
    assert model.tolist() == [2.0, 4.0]
