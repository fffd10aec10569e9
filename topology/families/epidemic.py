"""Epidemic learning: fresh random partners in each round (de Vos et al., 2023, "Epidemic learning")."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from topology.base import Local, Member, Properties, Recent, Row
from topology.errors import bounded
from topology.families.matching import Keyed, neighbour_in_pairs
from topology.hashing import Keys, draw, keys, mix, predecessor, successor
from topology.mixing import rest
from topology.registry import register


@dataclass(frozen=True, slots=True)
class Pushes:
    """The members' keys, and who pushes to whom in the last few rounds."""

    at: Keys
    rounds: Recent[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=lambda: Recent(2))


@register("epidemic-local")
@dataclass(frozen=True)
class EpidemicLocal(Local[Pushes]):
    """Everybody pushes to `fanout` random others and averages what it gets, all alike. Rows sum to 1, columns don't: **the mean
    moves** a little each round (fanout 2, 8 nodes: what they agree on misses the mean by a tenth of the values' spread)."""

    fanout: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        bounded("epidemic-local: fanout", self.fanout, 1)

    def remark(self, n: int) -> str | None:
        """Averaging whatever arrives is no mean."""
        return None if self.fanout >= n - 1 else "the mean moves: rows sum to 1, columns don't"

    def plan(self, members: Sequence[Member]) -> Pushes:
        """One key per member."""
        return Pushes(keys(members, self.seed))

    def local(self, plan: Pushes, round: int, index: int) -> Row:
        """Whoever chose me, and whom I chose: those count their own choosers."""
        targets, heard = plan.rounds.get(round, lambda: self._draw(plan.at, round))
        chosen = targets[index].tolist()
        choosers = np.flatnonzero((targets == index).any(axis=1)).tolist()
        own = 1 / (1 + len(choosers))
        return Row(own, tuple((j, 1 / (1 + int(heard[j]))) for j in sorted(chosen)), tuple((j, own) for j in choosers))

    def properties(self, n: int) -> Properties:
        """None but for few members, where everybody hears everybody."""
        everybody = self.fanout >= n - 1
        return Properties(
            symmetric=everybody,
            doubly_stochastic=everybody,
            mean_preserving=everybody,
            regular=everybody,
            directed=not everybody,
            period=1 if everybody else None,
            finite_time=everybody,
        )

    def _draw(self, at: Keys, round: int) -> tuple[np.ndarray, np.ndarray]:
        """(n, fanout) distinct others for everybody, by Floyd's method: draw below the limit, and take the limit if taken.
        And how often each is chosen, (n,)."""
        n, count = len(at), min(self.fanout, len(at) - 1)
        out = np.empty((n, count), dtype=np.int64)
        for k in range(count):
            limit = n - 1 - count + k
            drawn = (mix(at, draw(self.seed, round, k)) >> np.uint64(11)).astype(np.float64) / 2**53 * (limit + 1)
            taken = (out[:, :k] == drawn.astype(np.int64)[:, None]).any(axis=1)
            out[:, k] = np.where(taken, limit, drawn.astype(np.int64))
        others = out + (out >= np.arange(n)[:, None])
        return others, np.bincount(others.ravel(), minlength=n)


@register("epidemic-oracle")
@dataclass(frozen=True)
class EpidemicOracle(Keyed):
    """A fresh random graph each round, `fanout` partners each: cycles through all in random orders, and a matching if odd.

    Where two cycles share an edge their weights add up, so every round is doubly stochastic for every n.
    """

    fanout: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        bounded("epidemic-oracle: fanout", self.fanout, 1)

    def local(self, plan: Keys, round: int, index: int) -> Row:
        """Both neighbours in each cycle."""
        share = 1 / (self.fanout + 1)
        weights = dict[int, float]()
        for j in self._partners(plan, round, index):
            weights[j] = weights.get(j, 0.0) + share
        both = tuple(sorted(weights.items()))
        return Row(rest(weights.values()), both, both)

    def properties(self, n: int) -> Properties:
        """Symmetric; cycles may share edges, so the number of partners may differ."""
        return Properties(
            symmetric=True,
            doubly_stochastic=True,
            mean_preserving=True,
            directed=False,
            period=None if n > 2 else 1,
        )

    def _partners(self, plan: Keys, round: int, index: int) -> Iterable[int]:
        if len(plan) == 1:
            return
        for layer in range(self.fanout // 2):
            at = self.shuffled(plan, round, layer)
            yield from (predecessor(at, index), successor(at, index))
        if self.fanout % 2:
            partner = neighbour_in_pairs(self.shuffled(plan, round, self.fanout), index)
            yield from () if partner is None else (partner,)
