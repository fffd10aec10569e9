"""An optimizer's moments are columns of the same blocks: a first moment never arrives without the second that scales it."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from optim.codec import BFLOAT16, INT8, RAW, Codec, fits
from optim.kinds import Kind
from p2p.state import Shards, collect

Make = Callable[[nn.Module], Optimizer]


def shards_of(make: Make, *, steps: int = 0, seed: int = 0, block_bytes: int = 1024) -> tuple[Shards, nn.Module, Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 5))
    optimizer = make(model)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 20)).square().mean().backward()
        optimizer.step()
    return Shards(collect(model, [optimizer]), block_bytes=block_bytes, live=True), model, optimizer


def adam(model: nn.Module) -> Optimizer:
    return torch.optim.Adam(model.parameters())


def amsgrad(model: nn.Module) -> Optimizer:
    return torch.optim.AdamW(model.parameters(), amsgrad=True)


@pytest.mark.parametrize(
    ("make", "columns"), [(adam, ("exp_avg", "exp_avg_sq")), (amsgrad, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"))]
)
def test_each_block_holds_the_same_elements_of_every_moment(make: Make, columns: tuple[str, ...]) -> None:
    shards, _, _ = shards_of(make)
    blocks = [b for b in shards.blocks if b.kind is Kind.MOMENTS]
    assert len(blocks) > 3
    for block in blocks:
        per_column = len(block.segments) // len(columns)
        found = [block.segments[k * per_column : (k + 1) * per_column] for k in range(len(columns))]
        for name, segments in zip(columns, found, strict=True):
            assert all(shards.sources[s.tensor].name.endswith(f".{name}") for s in segments)
        assert len({tuple((s.start, s.stop) for s in segments) for segments in found}) == 1
    names = {shards.sources[s.tensor].name for b in shards.blocks if b.kind is not Kind.MOMENTS for s in b.segments}
    assert not any(name.endswith(columns) for name in names)


def test_momentum_alone_travels_alone() -> None:
    shards, _, _ = shards_of(lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    assert {b.kind for b in shards.blocks} == {Kind.PARAMETER, Kind.SIGNED}


@pytest.mark.parametrize("codec", [RAW, BFLOAT16])
def test_in_a_swap_the_one_adds_differences_and_the_other_mixes_convexly(codec: Codec) -> None:
    (one, _, _), (other, _, _) = (shards_of(adam, steps=steps, seed=steps) for steps in (3, 9))
    index = next(block.index for block in one.blocks if block.kind is Kind.MOMENTS)
    block = one.blocks[index]
    before = [torch.empty(block.elements) for _ in range(2)]
    for shards, out in zip((one, other), before, strict=True):
        shards.read(block, out)
    asked, answer = (torch.zeros(codec.nbytes(block.elements, block.dtype), dtype=torch.uint8) for _ in range(2))
    assert one.stage(index, 1, codec, asked) == ()
    assert other.answer(index, asked, codec, 0.5, answer, 3).finite
    assert one.settle(index, answer, codec, 0.5, 9).finite
    after = [torch.empty(block.elements) for _ in range(2)]
    for shards, out in zip((one, other), after, strict=True):
        shards.read(block, out)
    first, second = (at for _, at in block.columns)
    rough = 0.01 * float(before[0].abs().max()) if codec is BFLOAT16 else 1e-7
    torch.testing.assert_close(after[0][first] + after[1][first], before[0][first] + before[1][first], atol=1e-7, rtol=0)
    for side in after:
        torch.testing.assert_close(side[first], (before[0] + before[1])[first] / 2, atol=rough, rtol=0)
        torch.testing.assert_close(side[second], (before[0] + before[1])[second] / 2, atol=rough, rtol=0.01)
        assert (side[second] >= 0).all()


def test_only_codecs_that_spare_second_moments_carry_them() -> None:
    assert [fits(codec, Kind.MOMENTS, torch.float32) for codec in (RAW, BFLOAT16, INT8)] == [True, True, False]
