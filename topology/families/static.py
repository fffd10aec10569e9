"""Static undirected graphs given by a formula."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from topology.base import Member
from topology.families.undirected import Undirected
from topology.registry import register


@register("ring")
@dataclass(frozen=True)
class Ring(Undirected):
    """Node i with i - 1 and i + 1. A joining node replaces one edge by two."""

    @property
    def even(self) -> bool:
        """Everybody has two neighbours, or as few as there are."""
        return True

    def edges(self, members: Sequence[Member]) -> Iterable[tuple[int, int]]:
        """Round and back to the first."""
        n = len(members)
        return ((i, (i + 1) % n) for i in range(n))
