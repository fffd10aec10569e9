"""The sampler: which samples a node works on in an epoch, the same answer on every node that has the same view."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from p2p.errors import ConfigError

Split = Literal["shuffled", "sorted"]
Place = Callable[[], tuple[int, int]]
"""The node's rank in the present view, and the view's length."""


@dataclass(slots=True)
class Epoch:
    """The swarm's epoch, as this node counts it; a joiner begins with its donor's."""

    number: int = 0


class ShardedSampler(Sampler[int]):
    """At `iter()`, cuts permutation(seed, epoch) by the node's rank in the present view, and keeps that cut for the epoch.

    All nodes of one view together see every sample once an epoch. Where views differ, for the seconds that a join or a
    death takes to be known, some samples may be seen twice or not at all in that epoch. `split="sorted"` deals the
    samples sorted by label instead, so that a node sees few labels only: for experiments.
    """

    def __init__(
        self, data: Sized, seed: int, place: Place, epoch: Epoch, split: Split = "shuffled", labels: Sequence[int] | None = None
    ) -> None:
        if split == "sorted" and (labels is None or len(labels) != len(data)):
            raise ConfigError(f"split='sorted' needs labels=, one for each of the {len(data)} samples")
        if split not in ("shuffled", "sorted"):
            raise ConfigError(f"split is {split!r}: it can be 'shuffled' or 'sorted'")
        self._length = len(data)
        self._seed = seed
        self._place = place
        self._epoch = epoch
        self._order = np.argsort(np.asarray(labels), kind="stable") if split == "sorted" else None

    def __iter__(self) -> Iterator[int]:
        share = self._share(*self._place())
        self._epoch.number += 1
        return iter(share.tolist())

    def __len__(self) -> int:
        rank, count = self._place()
        return len(range(rank, self._length, count)) if self._order is None else len(self._stretch(rank, count))

    def _share(self, rank: int, count: int) -> npt.NDArray[np.int64]:
        rng = np.random.default_rng([self._seed, self._epoch.number])
        if self._order is None:
            return rng.permutation(self._length)[rank::count]
        return rng.permutation(self._order[self._stretch(rank, count)])

    def _stretch(self, rank: int, count: int) -> range:
        """The places, in the order of the labels, that are dealt to the node of this rank."""
        return range(self._length * rank // count, self._length * (rank + 1) // count)
