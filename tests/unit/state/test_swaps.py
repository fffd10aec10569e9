"""Swaps: opposite changes, convex moments, refusals."""

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from optim.codec import BFLOAT16, FLOAT16, INT8, RAW, Codec
from optim.kinds import Kind
from p2p.errors import WireError
from p2p.state import Shards

Make = Callable[..., Shards]
Swap = Callable[..., None]
LINEAR = [RAW, FLOAT16, BFLOAT16, INT8]


def copy_of(shards: Shards) -> Tensor:
    pieces = [torch.empty(block.elements, dtype=block.dtype) for block in shards.blocks]
    for block, piece in zip(shards.blocks, pieces, strict=True):
        shards.read(block, piece)
    return torch.cat(pieces)


def pack(values: list[float], dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(values, dtype=dtype).view(torch.uint8)


def room(elements: int) -> Tensor:
    return torch.zeros(4 * elements, dtype=torch.uint8)


def test_a_swap_at_one_half_meets_in_the_middle(shards_of: Make, swap: Swap) -> None:
    a, b = shards_of(torch.tensor([0.0, 8.0])), shards_of(torch.tensor([4.0, 2.0]))
    swap(a, b, RAW)
    assert copy_of(a).tolist() == copy_of(b).tolist() == [2.0, 5.0]
    swap(a, b, RAW, 0.25)
    assert copy_of(a).tolist() == [2.0, 5.0]


def test_the_weight_is_the_share_that_moves(shards_of: Make, swap: Swap) -> None:
    a, b = shards_of(torch.tensor([0.0])), shards_of(torch.tensor([8.0]))
    swap(a, b, RAW, 0.125)
    assert (copy_of(a).tolist(), copy_of(b).tolist()) == ([1.0], [7.0])


@pytest.mark.parametrize("codec", LINEAR)
@given(seed=st.integers(0, 2**32 - 1), elements=st.integers(1, 60))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_opposite_changes_keep_the_sum_whatever_the_timing(shards_of: Make, codec: Codec, seed: int, elements: int) -> None:
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    nodes = [shards_of(torch.randn(elements, generator=generator).double()) for _ in range(3)]
    before = sum(copy_of(n) for n in nodes)
    waiting: list[tuple[int, int, Tensor, float]] = []
    for _ in range(20):
        i, j = rng.sample(range(3), 2)
        block, weight = rng.choice(nodes[0].blocks), rng.choice([0.125, 0.25, 0.5])
        ask, change = (torch.zeros(sum(nodes[i].sizes(block.index, 1, codec)), dtype=torch.uint8) for _ in range(2))
        nodes[i].stage(block.index, 1, codec, ask)
        nodes[j].answer(block.index, ask, codec, weight, change, 1)
        waiting.append((i, block.index, change, weight))
        rng.shuffle(waiting)
        for i, index, change, weight in waiting[2:]:
            nodes[i].settle(index, change, codec, weight, 1)
        del waiting[2:]
    for i, index, change, weight in waiting:
        nodes[i].settle(index, change, codec, weight, 1)
    assert torch.allclose(sum(copy_of(n) for n in nodes), before, rtol=0, atol=1e-12)  # type: ignore[arg-type]


def test_the_difference_is_measured_on_both_sides(shards_of: Make) -> None:
    a, b = shards_of(torch.zeros(2)), shards_of(torch.tensor([3.0, 4.0]))
    change = room(2)
    assert b.answer(0, pack([0.0, 0.0]), RAW, 0.5, change, 1).squared == 25.0
    assert a.settle(0, change, RAW, 0.5, 1).squared == 25.0


def test_second_moments_mix_convexly(shards_of: Make) -> None:
    a = shards_of(torch.tensor([4.0, 0.0]), kind=Kind.NONNEGATIVE)
    b = shards_of(torch.tensor([8.0, 0.0]), kind=Kind.NONNEGATIVE)
    answer = room(2)
    assert b.answer(0, pack([4.0, 0.0]), RAW, 0.25, answer, 1).squared == 16.0
    assert answer.view(torch.float32).tolist() == [8.0, 0.0]
    assert copy_of(b).tolist() == [7.0, 0.0]
    assert a.settle(0, answer, RAW, 0.25, 1).squared == 16.0
    assert copy_of(a).tolist() == [5.0, 0.0]


def test_a_negative_second_moment_from_outside_does_not_get_in(shards_of: Make) -> None:
    a = shards_of(torch.tensor([4.0, 1.0]), kind=Kind.NONNEGATIVE)
    a.answer(0, pack([-100.0, 1.0]), RAW, 0.5, room(2), 1)
    assert copy_of(a).tolist() == [0.0, 1.0]
    a.settle(0, pack([-100.0, 1.0]), RAW, 0.5, 1)
    assert copy_of(a).tolist() == [0.0, 1.0]


def test_counters_end_at_the_larger(shards_of: Make, swap: Swap) -> None:
    a, b = (shards_of(torch.tensor(v), kind=Kind.COUNTER) for v in ([3.0, 9.0], [5.0, 2.0]))
    swap(a, b, RAW)
    assert copy_of(a).tolist() == copy_of(b).tolist() == [5.0, 9.0]


@pytest.mark.parametrize(("steps", "expected"), [((7, 3), [1, 1]), ((3, 7), [2, 2])])
def test_integers_end_at_the_newest(shards_of: Make, swap: Swap, steps: tuple[int, int], expected: list[int]) -> None:
    first, second = torch.tensor([0]), torch.tensor([0])
    a, b = shards_of(first, kind=Kind.NEWEST), shards_of(second, kind=Kind.NEWEST)
    first.fill_(1)
    second.fill_(2)
    a.meet(steps[0])
    b.meet(steps[1])
    swap(a, b, RAW, steps=steps)
    assert [int(copy_of(a)), int(copy_of(b))] == expected


@pytest.mark.parametrize("kind", [Kind.PARAMETER, Kind.NONNEGATIVE, Kind.COUNTER])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_refused_on_both_sides(shards_of: Make, kind: Kind, bad: float) -> None:
    shards = shards_of(torch.ones(3), torch.ones(5), kind=kind)
    data = pack([1, 1, 1, 1, bad, 1, 1, 1])
    answered, settled = shards.answer(0, data, RAW, 0.5, room(8), 1), shards.settle(0, data, RAW, 0.5, 1)
    for difference in (answered, settled):
        assert (difference.finite, difference.squared, difference.nonfinite) == (False, 0.0, ("t1",))
    assert copy_of(shards).tolist() == [1.0] * 8
    assert shards.meet(1).touched == 0


def test_an_own_value_that_is_not_finite_is_not_sent(shards_of: Make) -> None:
    shards = shards_of(torch.ones(8), torch.tensor([torch.nan] * 2))
    assert shards.stage(0, 2, RAW, room(10)) == ("t1",)
    assert shards.stage(0, 1, RAW, room(8)) == ()


def test_several_blocks_travel_in_one_message(shards_of: Make) -> None:
    shards = shards_of(torch.arange(20.0))
    for codec in LINEAR:
        sizes = shards.sizes(0, 3, codec)
        out = torch.zeros(sum(sizes), dtype=torch.uint8)
        assert shards.stage(0, 3, codec, out) == ()
        pieces = shards.split(out, 0, 3, codec)
        decoded = [codec.decode(p, torch.empty(n)) for p, n in zip(pieces, (8, 8, 4), strict=True)]
        assert torch.allclose(torch.cat(decoded), torch.arange(20.0), atol=0.1)


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, 0), (0, -1), (0, 3), (1, 2), (4, 1), (0, 10**12)])
def test_blocks_that_cannot_be_one_message(shards_of: Make, first: int, count: int) -> None:
    shards = shards_of(torch.zeros(16), torch.zeros(4).double(), torch.zeros(4).double())
    assert [b.run for b in shards.blocks] == [0, 0, 1, 1]
    with pytest.raises(WireError, match="blocks"):
        shards.sizes(first, count, RAW)


def test_a_payload_of_another_size_is_refused(shards_of: Make) -> None:
    shards = shards_of(torch.zeros(10))
    for size in (0, 39, 41):
        with pytest.raises(WireError, match="size"):
            shards.split(torch.zeros(size, dtype=torch.uint8), 0, 2, RAW)


def test_a_codec_that_would_spoil_the_values_is_refused(shards_of: Make) -> None:
    moments: Any = shards_of(torch.zeros(4), kind=Kind.NONNEGATIVE)
    with pytest.raises(WireError, match="int8 would spoil nonnegative values"):
        moments.sizes(0, 1, INT8)
    assert moments.sizes(0, 1, BFLOAT16) == [8]


def test_trainer_and_agents_meet_from_several_threads(shards_of: Make, swap: Swap) -> None:
    """Two agents swap while a trainer meets: nothing is lost, nothing is torn."""
    models = [torch.full((50,), float(i), dtype=torch.float64) for i in range(2)]
    a, b = (shards_of(m) for m in models)

    def train() -> None:
        for step in range(200):
            models[0].add_(1)
            a.meet(step)

    trainer = threading.Thread(target=train)
    trainer.start()
    while trainer.is_alive():
        swap(a, b, RAW)
    trainer.join()
    assert torch.allclose(copy_of(a) + copy_of(b), torch.full((50,), 201.0, dtype=torch.float64), rtol=0, atol=1e-9)
