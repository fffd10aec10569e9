"""Buffers between the gossip copy and the wire: reused, and given back only when the transport no longer reads them."""

from __future__ import annotations

import torch
from torch import Tensor

from p2p.net.transport import Sent


class Staging:
    """A pool of byte buffers of a few sizes (powers of two). What is out is bounded by its users' credit; what is out and
    what is free together never exceed the most that was out at once."""

    def __init__(self) -> None:
        self._free: dict[int, list[Tensor]] = {}
        self._leaving: list[tuple[Sent, Tensor]] = []
        self._out = self._idle = self._most = 0  # bytes

    def take(self, nbytes: int) -> Tensor:
        """A buffer of at least so many bytes; its content is arbitrary."""
        self._reclaim()
        size = 1 << max(nbytes - 1, 255).bit_length()
        self._out += size
        self._most = max(self._most, self._out)
        if self._free.get(size):
            self._idle -= size
            return self._free[size].pop()
        self._trim()
        return torch.empty(size, dtype=torch.uint8)

    def give(self, buffer: Tensor, sent: Sent | None = None) -> None:
        """Done with it, or done once `sent` is."""
        if sent is None or sent.done:
            self._free.setdefault(buffer.numel(), []).append(buffer)
            self._out -= buffer.numel()
            self._idle += buffer.numel()
        else:
            self._leaving.append((sent, buffer))

    @property
    def nbytes(self) -> int:
        """Bytes held, out or free."""
        return self._out + self._idle

    def _reclaim(self) -> None:
        """One message that is stuck must not hold back what left after it."""
        leaving, self._leaving = self._leaving, []
        for sent, buffer in leaving:
            self.give(buffer, sent)

    def _trim(self) -> None:
        """Sizes that are asked for less often now make room for those that are."""
        while self._idle and self.nbytes > self._most:
            size = max(self._free, key=lambda size: size * len(self._free[size]))
            self._idle -= self._free[size].pop().numel()
