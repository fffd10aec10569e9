"""What is exchanged: the float32 vector of each rank, and how far one is from the mean of all."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor


class Place:
    """This process among its crew, as the command line says: ... MEGABYTES RANK SIZE FOLDER."""

    def __init__(self) -> None:
        megabytes, rank, size, folder = sys.argv[-4:]
        self.rank, self.size, self.folder = int(rank), int(size), Path(folder)
        self.elements = int(float(megabytes) * 1e6) // 4
        torch.set_num_threads(1)

    def vector(self, rank: int) -> Tensor:
        """Of that rank: no two elements in a row are equal, no two ranks have the same."""
        return (torch.arange(self.elements, dtype=torch.float32) % 1021).mul_((rank + 1) / 1021)

    def fill(self, x: Tensor) -> None:
        """The own vector."""
        x.copy_(self.vector(self.rank))

    def mean(self) -> Tensor:
        """Of all ranks' vectors."""
        return self.vector(0).mul_((self.size + 1) / 2)

    def error(self, x: Tensor, wanted: Tensor) -> float:
        """Root mean square difference, over that of the ranks' vectors to their mean at the start."""
        spread = sum(float((self.vector(rank) - self.mean()).square().mean()) for rank in range(self.size)) / self.size
        return (float((x - wanted).square().mean()) / spread) ** 0.5

    def partners(self, round: int) -> tuple[int, int]:
        """Whom to send to and whom to receive from on the one-peer exponential graph: 1, 2, 4 ... ranks on."""
        hop = 1 << round % max(1, (self.size - 1).bit_length())
        return (self.rank + hop) % self.size, (self.rank - hop) % self.size
