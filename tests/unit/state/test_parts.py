"""Parts that are exchanged in turn: which tensors, which blocks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import optim
from optim.parts import cut
from p2p.state import Method
from p2p.state.parts import members


@pytest.mark.parametrize(
    ("sizes", "parts", "expected"),
    [
        ([4, 4, 4], 1, [0, 0, 0]),
        ([4, 4, 4], 3, [0, 1, 2]),
        ([1, 1, 1, 1, 4], 2, [0, 0, 0, 0, 1]),
        ([10, 1, 1], 2, [0, 1, 1]),  # a large one makes a large part
        ([5], 3, [0]),
        ([4096, 64, 640, 10], 4, [0, 1, 2, 3]),  # no part is empty
        ([1] * 9, 5, [0, 0, 1, 1, 2, 2, 3, 3, 4]),
    ],
)
def test_tensors_are_dealt_in_order_by_size(sizes: list[int], parts: int, expected: list[int]) -> None:
    assert cut(sizes, parts) == expected


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.integers(1, 9))
def test_no_part_is_empty_or_far_beyond_its_share(sizes: list[int], parts: int) -> None:
    found = cut(sizes, parts)
    assert found == sorted(found) and found[0] >= 0 and found[-1] < parts
    assert len(set(found)) == min(parts, len(sizes))
    for part in range(parts):
        held = [size for size, place in zip(sizes, found, strict=True) if place == part]
        assert sum(held) <= sum(sizes) / parts + 2 * max(sizes)


def test_a_part_has_its_tensors_moments_and_every_part_the_buffers() -> None:
    model = nn.Sequential(nn.Linear(8, 4, bias=False), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 8, bias=False))
    method = Method(optim.make("block-cyclic:groups=2"), model, [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)])
    shards = method.shards(block_bytes=128)
    names = [
        {shards.sources[s.tensor].name for i in part for s in shards.blocks[i].segments}
        for part in members(shards.sources, shards.blocks, 2, whole=True)
    ]
    buffers = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert names == [buffers | {f"{i}.weight", f"optimizer.{i}.weight.momentum_buffer"} for i in (0, 2)]


def test_parts_of_blocks_cut_every_run_evenly() -> None:
    model = nn.Linear(16, 16, bias=False)
    method = Method(optim.make("dreamddp:period=4"), model, [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)])
    shards = method.shards(block_bytes=128)
    found = members(shards.sources, shards.blocks, 4, whole=False)
    assert found == [[2 * part, 2 * part + 1, 8 + 2 * part, 9 + 2 * part] for part in range(4)]
