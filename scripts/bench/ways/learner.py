"""What trainers of digits have in common. Only torch and numpy, so that it runs in any peer's virtual environment.

A case is a file of arrays: images, labels, the initial weights, a seed, and the images that each rank has.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

RATE, MOMENTUM, BATCH = 0.1, 0.9, 32


class Learner:
    """One rank's network and data; `seed` is of its batches."""

    def __init__(self, path: Path, rank: int, seed: int | None = None) -> None:
        with np.load(path) as case:
            self.images, self.labels = torch.from_numpy(case["images"]), torch.from_numpy(case["labels"])
            self.share = case[f"share-{rank}"]
            self._rng = np.random.default_rng([int(case["seed"]), rank if seed is None else seed])
            weights = torch.from_numpy(case["weights"])
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        nn.utils.vector_to_parameters(weights, self.model.parameters())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE, momentum=MOMENTUM)

    def loss(self, called: nn.Module) -> Tensor:
        """Of the next batch; `called` is the model or what wraps it."""
        chosen = torch.from_numpy(self._rng.choice(self.share, BATCH))
        return F.cross_entropy(called(self.images[chosen]), self.labels[chosen])

    def step(self, called: nn.Module) -> None:
        """As in any loop."""
        self.optimizer.zero_grad()
        self.loss(called).backward()
        self.optimizer.step()

    def vector(self) -> Tensor:
        """All parameters, copied."""
        return nn.utils.parameters_to_vector(self.model.parameters()).detach()
