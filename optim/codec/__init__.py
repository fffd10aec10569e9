"""How a piece of a shard travels: as it is, in 16 bits, or as 8-bit integers with a scale per group."""

from __future__ import annotations

import torch

from optim.codec.base import Codec, readable, writable
from optim.codec.half import Half
from optim.codec.int8 import Int8
from optim.codec.raw import Raw
from optim.kinds import Kind

RAW = Raw()
FLOAT16 = Half(torch.float16)
BFLOAT16 = Half(torch.bfloat16)
INT8 = Int8()

TABLE: dict[str, Codec] = {codec.name: codec for codec in (RAW, FLOAT16, BFLOAT16, INT8)}
"""Codecs by the name that travels."""


def fits(codec: Codec, kind: Kind, dtype: torch.dtype) -> bool:
    """Whether values of this kind and dtype survive the codec.

    Counters and integers must be exact. Second moments span many decades (1e-20 is an ordinary value), so they need the
    exponent of float32: float16 and int8 would turn the small ones into zeros, and steps into leaps.
    """
    if codec is RAW:
        return True
    return dtype.is_floating_point and (kind.linear or (kind in (Kind.NONNEGATIVE, Kind.MOMENTS) and codec is BFLOAT16))


__all__ = ["BFLOAT16", "FLOAT16", "INT8", "RAW", "TABLE", "Codec", "fits", "readable", "writable"]
