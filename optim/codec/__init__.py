"""How a piece of a shard travels.

As it is (`raw`), in narrower floats, or as 8-bit integers with a scale per group: the values themselves. As 4-bit integers,
signs, or the largest magnitudes: differences, which such a codec shrinks by a part each time. At random places, or in a few
directions of a matrix: a part of the values, exactly.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from optim.codec.base import Codec, Form, Projection, decode_over, readable, writable
from optim.codec.cast import Cast
from optim.codec.int4 import Int4
from optim.codec.int8 import Int8
from optim.codec.low_rank import LowRank
from optim.codec.random_k import RandomK
from optim.codec.raw import Raw
from optim.codec.sign import Sign
from optim.codec.top_k import TopK
from optim.kinds import Kind
from topology import SpecError

RAW = Raw()
FLOAT32 = Cast(torch.float32)
FLOAT16 = Cast(torch.float16)
BFLOAT16 = Cast(torch.bfloat16)
INT8 = Int8()
INT4 = Int4()
SIGN = Sign()

TABLE: dict[str, Codec] = {codec.name: codec for codec in (RAW, FLOAT32, FLOAT16, BFLOAT16, INT8, INT4, SIGN)}
"""Codecs by the name that travels; those with a number are made by `make`."""

FAMILIES: dict[str, tuple[type[TopK] | type[RandomK] | type[LowRank], int, int]] = {
    "top-k": (TopK, 2, 1000),
    "random-k": (RandomK, 2, 1000),
    "low-rank": (LowRank, 1, 16),
}
"""By name: the codec, and the least and the largest number that may follow after a colon."""


@lru_cache(maxsize=64)
def make(name: str) -> Codec:
    """The codec of this name: `int8`, `top-k:100` (one element in 100), `low-rank:2`. Raises SpecError, which lists them."""
    if name in TABLE:
        return TABLE[name]
    family, _, number = name.partition(":")
    if family not in FAMILIES:
        raise SpecError(
            f"codec {name[:40]!r} is not known; there are {', '.join(TABLE)}, {', '.join(f'{f}:N' for f in FAMILIES)}"
        )
    kind, least, largest = FAMILIES[family]
    if not (number.isascii() and number.isdecimal() and len(number) < 6 and least <= int(number) <= largest):
        raise SpecError(f"codec {name[:40]!r}: {family}:N with N from {least} to {largest} is expected")
    return kind(int(number))


def fits(codec: Codec, kind: Kind, dtype: torch.dtype) -> bool:
    """Whether values of this kind and dtype survive the codec.

    Counters and integers must be exact. Second moments span many decades (1e-20 is an ordinary value), so they need the
    exponent of float32: float16 and int8 would turn the small ones into zeros, and steps into leaps.
    """
    if codec is RAW:
        return True
    ranged = kind in (Kind.NONNEGATIVE, Kind.MOMENTS) and codec in (BFLOAT16, FLOAT32)
    return dtype.is_floating_point and (kind.linear or ranged)


__all__ = [
    "BFLOAT16",
    "FLOAT16",
    "FLOAT32",
    "INT4",
    "INT8",
    "RAW",
    "SIGN",
    "TABLE",
    "Codec",
    "Form",
    "Projection",
    "decode_over",
    "fits",
    "make",
    "readable",
    "writable",
]
