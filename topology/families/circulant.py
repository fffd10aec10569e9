"""Circulant graphs: everybody does the same, shifted. A round is a table of shifts: i receives from i - s with weight w_s.

Every such matrix is doubly stochastic: each row and each column holds each shift's weight once.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from topology.base import Local, Member, Properties, Row
from topology.errors import TopologyError, bounded
from topology.hashing import below
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
        return replace(super().properties(n), finite_time=n & (n - 1) == 0)


@register("n-peer-exponential")
@dataclass(frozen=True)
class NPeerExponential(Circulant):
    """`peers` partners a round, at j * (peers + 1)^i for j = 1 .. peers: exact for powers of peers + 1 (Ying et al.)."""

    peers: int = 2

    def __post_init__(self) -> None:
        bounded("n-peer-exponential: peers", self.peers, 1)

    def period(self, n: int) -> int:
        """The number of powers of peers + 1 below n."""
        return max(sum(1 for _ in self._powers(n)), 1)

    def shifts(self, n: int, round: int) -> Mapping[int, float]:
        """All multiples of one power."""
        power = (self.peers + 1) ** (round % self.period(n))
        return {j * power: 1 / (self.peers + 1) for j in range(1, self.peers + 1)}

    def properties(self, n: int) -> Properties:
        """Exact for powers of peers + 1."""
        exact = n in (1, (self.peers + 1) ** self.period(n))
        return replace(super().properties(n), finite_time=exact)

    def _powers(self, n: int) -> Iterable[int]:
        power = 1
        while power < n:
            yield power
            power *= self.peers + 1


def equi_shifts(n: int, draws: int, seed: int) -> list[int]:
    """Distances drawn uniformly from 1 .. n - 1, drawn again until they connect all n; log2 n of them unless stated."""
    count = draws or max(log2_up(n), 1)
    for attempt in range(1000):
        shifts = [1 + below(n - 1, seed, attempt, m) for m in range(count)]
        if math.gcd(n, *shifts) == 1:
            return shifts
    return [1, *shifts[1:]]


@dataclass(frozen=True)
class _EquiStatic(Circulant):
    draws: int = 0
    """0: log2 n, rounded up."""
    seed: int = 0

    def __post_init__(self) -> None:
        bounded(f"{self.name}: draws (0: log2 n)", self.draws, 0)

    def shifts(self, n: int, round: int) -> Mapping[int, float]:
        """The mean over the draws of: (n - 1) / n from that far."""
        if n == 1:
            return {}
        drawn = equi_shifts(n, self.draws, self.seed)
        return merged(n, ((a, (n - 1) / n / len(drawn)) for a in drawn))


@register("d-equistatic")
@dataclass(frozen=True)
class DEquiStatic(_EquiStatic):
    """Random distances, directed: the gap depends on the number of draws, not on n (Song et al., 2022, "Communication-efficient
    topologies for decentralized learning with O(1) consensus rate")."""


@register("u-equistatic")
@dataclass(frozen=True)
class UEquiStatic(_EquiStatic):
    """Random distances both ways: (W + W^T) / 2 of d-equistatic (Song et al., 2022)."""

    def shifts(self, n: int, round: int) -> Mapping[int, float]:
        """Each both ways, half."""
        one_way = super().shifts(n, round)
        return merged(n, ((a * sign, w / 2) for a, w in one_way.items() for sign in (1, -1)))

    def properties(self, n: int) -> Properties:
        """Symmetric."""
        return replace(super().properties(n), symmetric=True, directed=False)


@register("od-equidyn")
@dataclass(frozen=True)
class ODEquiDyn(Circulant):
    """One random distance a round, the same for all (Song et al., 2022): the squared error halves each round, whatever n."""

    eta: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.eta <= 1:
            raise TopologyError(f"od-equidyn: eta must be above 0 and at most 1, not {self.eta}")

    def period(self, n: int) -> int | None:
        """None; one or two members have only one distance to draw."""
        return None if n > 2 else 1

    def shifts(self, n: int, round: int) -> Mapping[int, float]:
        """One draw."""
        return {1 + below(n - 1, self.seed, round): self.eta * (n - 1) / n} if n > 1 else {}
