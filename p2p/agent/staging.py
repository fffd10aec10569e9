"""Buffers between the gossip copy and the wire: reused, and given back only when the transport no longer reads them."""

from __future__ import annotations

import torch
from torch import Tensor

from p2p.net.transport import Sent


class Staging:
    """A pool of byte buffers of a few sizes (powers of two). Bounded by its users: what is out is bounded by credit."""

    def __init__(self) -> None:
        self._free: dict[int, list[Tensor]] = {}
        self._leaving: list[tuple[Sent, Tensor]] = []

    def take(self, nbytes: int) -> Tensor:
        """A buffer of at least so many bytes; its content is arbitrary."""
        self._reclaim()
        size = 1 << max(nbytes - 1, 255).bit_length()
        free = self._free.get(size)
        return free.pop() if free else torch.empty(size, dtype=torch.uint8)

    def give(self, buffer: Tensor, sent: Sent | None = None) -> None:
        """Done with it, or done once `sent` is."""
        if sent is None or sent.done:
            self._free.setdefault(buffer.numel(), []).append(buffer)
        else:
            self._leaving.append((sent, buffer))

    def _reclaim(self) -> None:
        """One message that is stuck must not hold back what left after it."""
        leaving, self._leaving = self._leaving, []
        for sent, buffer in leaving:
            self.give(buffer, sent)
