"""Randomness that all nodes share: hashes of (seed, member id, round) instead of a generator's state.

Keyed by ids, not by positions, a random graph keeps nearly all its edges when somebody joins or leaves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from topology.base import Member

Keys: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint64]]"
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def keys(members: Sequence[Member], seed: int) -> Keys:
    """One 64-bit key per member, (n,)."""
    salt = seed.to_bytes(8, "little", signed=True)
    digests = b"".join(hashlib.blake2b(m.id.encode(), digest_size=8, key=salt).digest() for m in members)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def mix(values: Keys, salt: int) -> Keys:
    """The finalizer of splitmix64 (Steele et al., 2014) over values ^ salt: a bijection, so distinct keys stay distinct."""
    x = values ^ np.uint64(salt & MASK)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def draw(*parts: int) -> int:
    """64 bits from a few numbers, such as (seed, round)."""
    packed = b"".join((part & MASK).to_bytes(8, "little") for part in parts)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")


def below(limit: int, *parts: int) -> int:
    """A number from 0 to limit - 1."""
    return (draw(*parts) * limit) >> 64


def unit(*parts: int) -> float:
    """A number in [0, 1)."""
    return (draw(*parts) >> 11) / (1 << 53)


def successor(at: Keys, index: int) -> int:
    """Who follows `index` in the circle of keys: O(n), but a few microseconds for thousands."""
    return int(np.argmin(at - at[index] - np.uint64(1)))


def predecessor(at: Keys, index: int) -> int:
    """Who precedes `index` in the circle of keys."""
    return int(np.argmin(at[index] - at - np.uint64(1)))


def rank(at: Keys, index: int) -> int:
    """How many keys are smaller."""
    return int(np.count_nonzero(at < at[index]))
