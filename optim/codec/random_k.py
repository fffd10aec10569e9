"""Values at random places, which a seed names: nothing but the values and eight bytes travels.

One element of every `every` consecutive ones, drawn evenly, so that a swap averages that part of the model exactly and
leaves the rest. A piece is the seed (int64), then ceil(n / every) values (float32).
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from optim.codec.base import Projection
from optim.codec.groups import LARGEST

SEED = 8


class RandomK(Projection):
    """Keeps 1 / every of |x|^2 in the mean."""

    def __init__(self, every: int) -> None:
        self._every = every
        self.name = f"random-k:{every}"

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        return SEED + 4 * -(-elements // self._every)

    def head(self, elements: int) -> int:
        return SEED

    def begin(self, data: Tensor, elements: int, seed: int, last: Tensor | None) -> None:
        data[:SEED].copy_(torch.tensor([seed]).view(torch.uint8))

    def magnify(self, elements: int) -> float:
        return float(min(self._every, elements))

    def encode(self, x: Tensor, data: Tensor) -> None:
        values, places = data[SEED:].view(torch.float32), self._places(data, x.numel())
        if x.dtype is torch.float32:
            torch.index_select(x, 0, places, out=values)
        else:
            values.copy_(torch.index_select(x, 0, places).clamp_(-LARGEST, LARGEST))

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        values = data[SEED:].view(torch.float32)
        return out.index_copy_(0, self._places(data, out.numel()), values.to(out.dtype))

    def _places(self, data: Tensor, elements: int) -> Tensor:
        """One place in each stretch of `every` elements; in a shorter last one, one of those that are there."""
        k, rest = -(-elements // self._every), elements % self._every
        seed = int.from_bytes(data[:SEED].numpy().tobytes(), "little") & (1 << 63) - 1
        places = torch.randint(0, self._every, (k,), generator=torch.Generator().manual_seed(seed))
        if rest:
            places[-1:].remainder_(rest)
        return places.add_(_starts(k, self._every))


@lru_cache(maxsize=16)
def _starts(k: int, every: int) -> Tensor:
    """Where the stretches begin; nobody writes to it."""
    return torch.arange(0, k * every, every)
