"""What a simulated swarm trains: nothing (vectors that are only averaged), or a small network on real digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from optim import AccumAdam, SwarmAdam

Indices = npt.NDArray[np.int64]


class Workload(Protocol):
    """Each node has its own model and optimizer; everything random follows from the workload's seed and the node's number."""

    def model(self, node: int) -> nn.Module: ...
    def optimizer(self, model: nn.Module) -> Optimizer: ...
    def gradient(self, node: int, model: nn.Module) -> None:
        """Fill the gradients of the next batch."""

    def batch_loss(self, node: int, model: nn.Module) -> float:
        """Of a model on the batch of the last gradient of this node."""

    def score(self, model: nn.Module) -> float:
        """How good a model is."""

    def loss(self, model: nn.Module) -> float | None:
        """How far it is from what is sought; None where nothing is learned."""


class Vector(nn.Module):
    """A model that is one vector."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = nn.Parameter(value)


@dataclass(frozen=True)
class Averaging:
    """Nothing is learned: each node begins with a normal vector (float64) of its own, and exchange alone changes it.

    The score is the root mean square of a model's elements; a swarm's mean of n vectors has about 1 / sqrt(n).
    """

    size: int = 64
    seed: int = 0

    def model(self, node: int) -> nn.Module:
        return Vector(torch.from_numpy(np.random.default_rng([self.seed, node]).normal(size=self.size)))

    def optimizer(self, model: nn.Module) -> Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.0)

    def gradient(self, node: int, model: nn.Module) -> None:
        """There is none, so the optimizer leaves the vector alone."""

    def batch_loss(self, node: int, model: nn.Module) -> float:
        """0: there is nothing to learn."""
        return 0.0

    def moved(self) -> Tensor:
        """The sum of all nodes' local updates."""
        return torch.zeros(self.size, dtype=torch.float64)

    def score(self, model: nn.Module) -> float:
        with torch.no_grad():
            return float(torch.cat([p.flatten() for p in model.parameters()]).square().mean().sqrt())

    def loss(self, model: nn.Module) -> float | None:
        """None: there is nothing to learn."""
        return None


@dataclass(frozen=True)
class Drifting(Averaging):
    """Averaging, while every step adds a normal vector to every node; the sum of these is known, for the ledger.

    `drift` is the mean of its elements: so much do all nodes move together.
    """

    drift: float = 0.0
    _rngs: dict[int, np.random.Generator] = field(default_factory=dict, init=False, repr=False, compare=False)
    _moves: list[Tensor] = field(default_factory=list, init=False, repr=False, compare=False)

    def optimizer(self, model: nn.Module) -> Optimizer:
        return torch.optim.SGD(model.parameters(), lr=1.0)

    def gradient(self, node: int, model: nn.Module) -> None:
        if node not in self._rngs:
            self._rngs[node] = np.random.default_rng([self.seed, node, 1])
        update = torch.from_numpy(self._rngs[node].normal(self.drift, size=self.size))
        for parameter in model.parameters():
            parameter.grad = -update
        self._moves.append(update)

    def moved(self) -> Tensor:
        return sum(self._moves, super().moved())


@dataclass(frozen=True)
class Quadratics:
    """Node i has f_i(x) = (x - b_i)^T A_i (x - b_i) / 2 (float64) and its exact gradient; the minima are far apart.

    A_i has random eigenvectors and eigenvalues evenly from 0.5 to 1.5; b_i and the start x_i are normal. The score is the
    root mean square distance of a model to the minimum of the sum over the first `nodes` nodes.
    """

    nodes: int
    size: int = 10
    seed: int = 0
    learning_rate: float = 0.05
    momentum: float = 0.0

    def model(self, node: int) -> nn.Module:
        return Vector(torch.from_numpy(np.random.default_rng([self.seed, node, 1]).normal(size=self.size)))

    def optimizer(self, model: nn.Module) -> Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.learning_rate, momentum=self.momentum)

    def gradient(self, node: int, model: nn.Module) -> None:
        matrix, centre = self.function(node)
        for x in model.parameters():
            x.grad = matrix @ (x.detach() - centre)

    def batch_loss(self, node: int, model: nn.Module) -> float:
        """f_node."""
        matrix, centre = self.function(node)
        with torch.no_grad():
            away = nn.utils.parameters_to_vector(model.parameters()) - centre
            return float(away @ matrix @ away) / 2

    def score(self, model: nn.Module) -> float:
        with torch.no_grad():
            return float((nn.utils.parameters_to_vector(model.parameters()) - self.minimum).square().mean().sqrt())

    def loss(self, model: nn.Module) -> float | None:
        """The nodes' mean function, above its minimum."""
        with torch.no_grad():
            away = nn.utils.parameters_to_vector(model.parameters()) - self.minimum
            return float(away @ self._total @ away) / (2 * self.nodes)

    def function(self, node: int) -> tuple[Tensor, Tensor]:
        """A_i and b_i."""
        rng = np.random.default_rng([self.seed, node])
        basis = np.linalg.qr(rng.normal(size=(self.size, self.size)))[0]
        matrix = basis @ np.diag(np.linspace(0.5, 1.5, self.size)) @ basis.T
        return torch.from_numpy(matrix), torch.from_numpy(rng.normal(size=self.size))

    @cached_property
    def minimum(self) -> Tensor:
        """Of the sum of all nodes' functions."""
        pull = torch.stack([matrix @ centre for matrix, centre in map(self.function, range(self.nodes))]).sum(0)
        minimum: Tensor = torch.linalg.solve(self._total, pull)
        return minimum

    @cached_property
    def _total(self) -> Tensor:
        """The sum of all A_i."""
        return torch.stack([self.function(node)[0] for node in range(self.nodes)]).sum(0)


@cache
def digits() -> tuple[Tensor, Tensor]:
    """All of scikit-learn's 1,797 digits in a fixed random order: images (n, 64) in 0..1, labels (n,)."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    return torch.from_numpy(images[order] / 16.0).float(), torch.from_numpy(labels[order]).long()


ADAMS: dict[str, Callable[..., Optimizer]] = {
    "adam": torch.optim.Adam,
    "swarm-adam": SwarmAdam,
    "accum-adam": AccumAdam,
}

TRAINING = 1400  # images; the rest is held out


@dataclass(frozen=True)
class Digits:
    """A 64-64-10 network on digits that are dealt sorted by label, shuffled, or each label in Dirichlet(`alpha`) shares.

    The score is the accuracy on the held-out images. `learning_rate` None is 0.1 for SGD, 0.005 for any Adam; `momentum` is
    SGD's.
    """

    nodes: int
    split: Literal["sorted", "shuffled", "dirichlet"] = "sorted"
    seed: int = 0
    optimizer_name: Literal["sgd", "adam", "swarm-adam", "accum-adam"] = "sgd"
    learning_rate: float | None = None
    batch: int = 32
    alpha: float = 0.3
    momentum: float = 0.9
    _rngs: dict[int, np.random.Generator] = field(default_factory=dict, init=False, repr=False, compare=False)
    _batches: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def model(self, node: int) -> nn.Module:
        """The same weights for every node."""
        rng = np.random.default_rng(self.seed)
        layers = nn.Linear(64, 64), nn.Linear(64, 10)
        with torch.no_grad():
            for layer in layers:
                weights = rng.normal(size=(layer.out_features, layer.in_features)) * np.sqrt(2 / layer.in_features)
                layer.weight.copy_(torch.from_numpy(weights))
                layer.bias.zero_()
        return nn.Sequential(layers[0], nn.ReLU(), layers[1])

    def optimizer(self, model: nn.Module) -> Optimizer:
        if self.optimizer_name == "sgd":
            rate = 0.1 if self.learning_rate is None else self.learning_rate
            return torch.optim.SGD(model.parameters(), lr=rate, momentum=self.momentum)
        return ADAMS[self.optimizer_name](model.parameters(), lr=0.005 if self.learning_rate is None else self.learning_rate)

    def gradient(self, node: int, model: nn.Module) -> None:
        if node not in self._rngs:
            self._rngs[node] = np.random.default_rng([self.seed, node])
        images, labels = digits()
        chosen = self._batches[node] = torch.from_numpy(self._rngs[node].choice(self.shares[node % self.nodes], self.batch))
        model.zero_grad()
        F.cross_entropy(model(images[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]

    def batch_loss(self, node: int, model: nn.Module) -> float:
        """Cross entropy on its last batch."""
        images, labels = digits()
        chosen = self._batches[node]
        with torch.no_grad():
            return float(F.cross_entropy(model(images[chosen]), labels[chosen]))

    def score(self, model: nn.Module) -> float:
        images, labels = digits()
        with torch.no_grad():
            return float((model(images[TRAINING:]).argmax(1) == labels[TRAINING:]).float().mean())

    def loss(self, model: nn.Module) -> float | None:
        """Cross entropy on the held-out images."""
        images, labels = digits()
        with torch.no_grad():
            return float(F.cross_entropy(model(images[TRAINING:]), labels[TRAINING:]))

    @cached_property
    def shares(self) -> list[Indices]:
        """Which training images each node has; together all of them, each once."""
        labels = digits()[1][:TRAINING].numpy()
        if self.split == "dirichlet":
            return self._dirichlet(labels)
        order = np.argsort(labels, kind="stable") if self.split == "sorted" else np.arange(TRAINING)
        return np.array_split(order, self.nodes)

    def _dirichlet(self, labels: Indices) -> list[Indices]:
        """Each label's images dealt in random proportions; whoever got none takes one from whoever has most."""
        rng = np.random.default_rng([self.seed, 1])
        shares: list[list[int]] = [[] for _ in range(self.nodes)]
        for label in range(10):
            images = np.flatnonzero(labels == label)
            edges = np.cumsum(rng.dirichlet(np.full(self.nodes, self.alpha)))[:-1] * len(images)
            for share, part in zip(shares, np.split(images, edges.astype(int)), strict=True):
                share.extend(part.tolist())
        for share in shares:
            if not share:
                share.append(max(shares, key=len).pop())
        return [np.array(share) for share in shares]
