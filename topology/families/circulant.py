"""Circulant graphs: everybody does the same, shifted. A round is a table of shifts: i receives from i - s with weight w_s.

Every such matrix is doubly stochastic: each row and each column holds each shift's weight once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from topology.base import Local, Member, Properties, Row
from topology.mixing import rest
from topology.registry import register


def log2_up(n: int) -> int:
    """ceil(log2 n), exactly."""
    return (n - 1).bit_length()


class Circulant(Local[int]):
    """A family writes `shifts`; the plan is n alone."""

    @abstractmethod
    def shifts(self, n: int, round: int) -> Mapping[int, float]:
        """{distance: weight} without the self weight; distances count modulo n, and add up where they coincide."""

    def period(self, n: int) -> int | None:
        """After so many rounds it starts again."""
        return 1

    def plan(self, members: Sequence[Member]) -> int:
        """The number of members."""
        return len(members)

    def local(self, plan: int, round: int, index: int) -> Row:
        """All shifts, from here."""
        weights = merged(plan, self.shifts(plan, round).items())
        ins = tuple(sorted(((index - s) % plan, w) for s, w in weights.items()))
        outs = tuple(sorted(((index + s) % plan, w) for s, w in weights.items()))
        return Row(rest(weights.values()), outs, ins)

    def properties(self, n: int) -> Properties:
        """Doubly stochastic and regular."""
        return Properties(doubly_stochastic=True, mean_preserving=True, regular=True, period=self.period(n))


def merged(n: int, shifts: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Distances modulo n, those that coincide added up; a shift by 0 is self weight and falls away."""
    out: dict[int, float] = {}
    for distance, weight in shifts:
        if distance % n:
            out[distance % n] = out.get(distance % n, 0.0) + weight
    return out


@register("complete")
@dataclass(frozen=True)
class Complete(Circulant):
    """Everybody with everybody, 1/n each: the exact average in one round, n - 1 transfers a node."""

    def shifts(self, n: int, round: int) -> Mapping[int, float]:
        """All of them."""
        return dict.fromkeys(range(1, n), 1 / n)

    def properties(self, n: int) -> Properties:
        """Everything one could wish, but cheap."""
        return Properties(
            symmetric=True,
            doubly_stochastic=True,
            mean_preserving=True,
            regular=True,
            directed=False,
            period=1,
            finite_time=True,
            smallest_eigenvalue=0.0 if n > 1 else 1.0,
        )


@register("exponential")
@dataclass(frozen=True)
class Exponential(Circulant):
    """Node i hears from i - 1, i - 2, i - 4 ..., all with equal weight (Ying et al., 2021, "Exponential graph is provably
    efficient for decentralized deep training")."""

    def shifts(self, n: int, round: int) -> Mapping[int, float]:
        """Powers of two below n."""
        hops = log2_up(n)
        return {1 << k: 1 / (hops + 1) for k in range(hops)}


@register("one-peer-exponential")
@dataclass(frozen=True)
class OnePeerExponential(Circulant):
    """The static exponential's neighbours one after the other, half and half (Ying et al., 2021; Assran et al., 2019).

    For a power of two the average is exact after log2 n rounds.
    """

    def period(self, n: int) -> int:
        """One round for each power of two below n."""
        return max(log2_up(n), 1)

    def shifts(self, n: int, round: int) -> Mapping[int, float]:
        """One power of two."""
        return {1 << round % self.period(n): 0.5}

    def properties(self, n: int) -> Properties:
        """Exact for powers of two."""
        return Properties(
            doubly_stochastic=True,
            mean_preserving=True,
            regular=True,
            period=self.period(n),
            finite_time=n & (n - 1) == 0,
        )
