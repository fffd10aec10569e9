"""Values at random places, which a seed names: nothing but the values and eight bytes travels.

One run of every `every` consecutive ones, drawn evenly, so that a swap averages that part of the model exactly and leaves
the rest. A run is a line of the cache, RUN elements, since reading one element costs as much; where a piece has few of
those, it is one element. A piece is the seed (int64), the runs drawn, and the elements after the last whole run (float32).

Places are rows of a table: in DEALS deals, each run is in exactly one of every `every` rows; the seed says which row.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from optim.codec.base import Projection, writable
from optim.codec.groups import LARGEST

SEED = 8
RUN = 16
DEALS = 16


class RandomK(Projection):
    """Keeps 1 / every of |x|^2 in the mean."""

    def __init__(self, every: int) -> None:
        self._every = every
        self.name = f"random-k:{every}"

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        run = self._run(elements)
        return SEED + 4 * (run * -(-(elements // run) // self._every) + elements % run)

    def head(self, elements: int) -> int:
        return SEED

    def begin(self, data: Tensor, elements: int, seed: int, last: Tensor | None) -> None:
        writable(data)[:SEED] = seed.to_bytes(SEED, "little")

    def magnify(self, elements: int) -> float:
        return float(min(self._every, elements))

    def encode(self, x: Tensor, data: Tensor) -> None:
        places, rows, drawn = self._parts(x, data)
        if x.dtype is torch.float32:
            torch.index_select(rows, 0, places, out=drawn)
        else:
            drawn.copy_(torch.index_select(rows, 0, places).clamp_(-LARGEST, LARGEST))
        if over := x.numel() - rows.numel():
            data[-4 * over :].view(torch.float32).copy_(x[-over:].clamp(-LARGEST, LARGEST))

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        places, rows, drawn = self._parts(out, data)
        rows.index_copy_(0, places, drawn.to(out.dtype))
        if over := out.numel() - rows.numel():
            out[-over:].copy_(data[-4 * over :].view(torch.float32))
        return out

    def _run(self, elements: int) -> int:
        return RUN if elements >= RUN * self._every else 1

    def _parts(self, x: Tensor, data: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Which runs, all runs of `x` as rows, and those drawn, in the piece."""
        run = self._run(x.numel())
        whole, over = divmod(x.numel(), run)
        seed = int.from_bytes(data.numpy()[:SEED].tobytes(), "little")
        mixed = seed * 0xD1342543DE82EF95 >> 40 & 0xFFFFFF
        places = _table(whole, self._every)[mixed % (DEALS * self._every)]
        drawn = data.view(torch.float32)[2 : 2 + places.numel() * run]
        return places, (x[: whole * run] if over else x).view(whole, run), drawn.view(-1, run)


@lru_cache(maxsize=8)
def _table(runs: int, every: int) -> tuple[Tensor, ...]:
    """DEALS x every rows (stretches,): a run of each stretch of `every`; of a shorter last one, one of those that are there."""
    stretches = -(-runs // every)
    shifts = torch.randint(0, every, (DEALS, 1, stretches), generator=torch.Generator().manual_seed(1))
    offsets = (shifts + torch.arange(every)[None, :, None]) % every
    if runs % every:
        offsets[:, :, -1] %= runs % every
    return (offsets + torch.arange(0, runs, every)).view(-1, stretches).unbind()
