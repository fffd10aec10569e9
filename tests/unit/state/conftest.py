"""Small things to share: sources over plain tensors, and models that are trained on the spot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from optim.kinds import Kind
from p2p.state import Shards


class Plain:
    """A source over a tensor that a test holds."""

    in_model = True
    owner = ""

    def __init__(self, name: str, kind: Kind, tensor: Tensor, brought: Tensor | None = None) -> None:
        self.name, self.kind, self.tensor, self.brought = name, kind, tensor, brought
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype

    def read(self) -> Tensor | None:
        return self.tensor

    def create(self) -> Tensor:
        return self.tensor


@pytest.fixture
def shards_of() -> Callable[..., Shards]:
    def make(
        *tensors: Tensor,
        kind: Kind = Kind.PARAMETER,
        block_bytes: int = 32,
        live: bool = True,
        brought: Sequence[Tensor | None] = (),
    ) -> Shards:
        sums = brought or [None] * len(tensors)
        sources = [Plain(f"t{i}", kind, tensor, total) for i, (tensor, total) in enumerate(zip(tensors, sums, strict=True))]
        return Shards(sources, block_bytes=block_bytes, live=live)

    return make


@pytest.fixture
def swap() -> Callable[..., None]:
    """One whole exchange of every block: `a` asks, `b` answers, `a` settles."""

    def run(a: Shards, b: Shards, codec: Any, weight: float = 0.5, steps: tuple[int, int] = (1, 1)) -> None:
        for block in a.blocks:
            size = sum(a.sizes(block.index, 1, codec))
            ask, change = torch.zeros(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)
            assert a.stage(block.index, 1, codec, ask) == ()
            assert b.answer(block.index, ask, codec, weight, change, steps[0]).finite
            assert a.settle(block.index, change, codec, weight, steps[1]).finite

    return run
