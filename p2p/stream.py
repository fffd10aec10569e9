"""Streams, split by node: each takes the items at its own positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from torch.utils.data import IterableDataset, get_worker_info

from p2p.data import Place

T = TypeVar("T")


class Stream(IterableDataset[T]):
    """Every node reads the same stream and keeps the items whose position mod n is its rank in the view; within a node,
    DataLoader workers split these among themselves in the same way.

    Where the view stays the same, every item is kept by exactly one node. The cut is made at `iter()` and kept for the
    pass. A pass over a stream takes no leases: what a dead node had is not taken up by others, and a change of the view
    between two nodes' `iter()` makes some items be kept twice or not at all. Give data with a length to `node.sampler()`.
    """

    def __init__(self, items: Iterable[T], place: Place) -> None:
        self._items = items
        self._place = place

    def __iter__(self) -> Iterator[T]:
        rank, count = self._place()
        worker = get_worker_info()
        if worker is not None:
            rank, count = rank + count * worker.id, count * worker.num_workers
        return (item for position, item in enumerate(self._items) if position % count == rank)

    def __getstate__(self) -> dict[str, Any]:
        """A spawned worker can't ask the node; it takes today's place with it."""
        return {"_items": self._items, "_place": _Fixed(*self._place())}


class _Fixed:
    """A place that is known."""

    def __init__(self, rank: int, count: int) -> None:
        self._at = rank, count

    def __call__(self) -> tuple[int, int]:
        return self._at
