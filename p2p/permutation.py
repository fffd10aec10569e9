"""The order of samples in an epoch, piece by piece: any node computes any part of it, in memory of that part only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from p2p.agent.shares import mix

Indices = npt.NDArray[np.int64]

ROUNDS = 8
"""Of the Feistel network; four make a strong pseudorandom permutation of random functions (Luby and Rackoff, 1988), small
domains need more."""


class Permutation:
    """A pseudorandom permutation of 0 .. length - 1 that `seed` and `epoch` decide.

    A balanced Feistel network on the next even number of bits; what falls outside goes through it again until it falls
    inside (cycle walking: Black and Rogaway, 2002; used for shuffling by Mitchell et al., arXiv 2106.06161).
    """

    def __init__(self, length: int, seed: int, epoch: int) -> None:
        self.length = length
        self._half = np.uint64(max(1, ((length - 1).bit_length() + 1) // 2))
        self._mask = np.uint64((1 << int(self._half)) - 1)
        start = mix(np.array([seed % (1 << 64)], dtype=np.uint64)) ^ np.uint64(epoch)
        self._keys = mix(mix(start) ^ np.arange(ROUNDS, dtype=np.uint64))

    def __getitem__(self, positions: slice) -> Indices:
        """The samples at these positions; int64."""
        found = self._scramble(np.arange(*positions.indices(self.length), dtype=np.uint64))
        while (outside := found >= self.length).any():
            found[outside] = self._scramble(found[outside])
        return found.astype(np.int64)

    def _scramble(self, x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        left, right = x >> self._half, x & self._mask
        for key in self._keys:
            left, right = right, left ^ (mix(right ^ key) & self._mask)
        return (left << self._half) | right
