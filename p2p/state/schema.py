"""The model schema: what is shared, in order. All nodes of a swarm must have the same one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

import torch

from optim.kinds import Kind

HASH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """One shared tensor."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    dtype: torch.dtype
    together: str = ""
    """What it travels with: entries of one shape and dtype that share this word are columns of the same blocks."""

    def __str__(self) -> str:
        """`conv1.weight: float32 (16, 1, 3, 3), parameter`."""
        return f"{self.name}: {dtype_name(self.dtype)} {self.shape}, {self.kind.name.lower()}"


class Schema:
    """The shared tensors in order, the size of the blocks, and what tells two schemas apart."""

    def __init__(self, entries: Sequence[Entry], block_bytes: int) -> None:
        self.entries = tuple(entries)
        self.hashes = b"".join(blake2b(str(e).encode(), digest_size=HASH_BYTES).digest() for e in entries)
        """4 bytes per tensor, in order: finds the first that differs."""
        text = "\n".join([str(block_bytes), *map(str, entries)])
        self.fingerprint = blake2b(text.encode(), digest_size=16).digest()
        """16 bytes over everything, block size included."""

    def describe(self, index: int) -> str:
        """The tensor for people; says so where this schema ends before it."""
        if 0 <= index < len(self.entries):
            return str(self.entries[index])
        return f"no tensor {index}: {len(self.entries)} in all"


def first_difference(own: bytes, other: bytes) -> int | None:
    """The first tensor at which two schemas' hashes differ, or at which the shorter one ends; None if they are equal."""
    if own == other:
        return None
    starts = range(0, max(len(own), len(other)), HASH_BYTES)
    return next(at for at in starts if own[at : at + HASH_BYTES] != other[at : at + HASH_BYTES]) // HASH_BYTES


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """`float32` rather than `torch.float32`."""
    return str(dtype).removeprefix("torch.")
