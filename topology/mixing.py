"""Mixing: the sparse matrix of one round. Row i says what node i makes of the values that it has and gets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from topology.errors import TopologyError
from topology.weights import Rule, metropolis

TOLERANCE = 1e-9
"""How far a row's or column's sum may be from 1."""

Arc = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Row:
    """What one node needs of a round. Positions in the sorted members, ascending."""

    self_weight: float
    outs: tuple[tuple[int, float], ...]
    """(j, the weight that j gives to my value)."""
    ins: tuple[tuple[int, float], ...]
    """(j, the weight that I give to j's value)."""


ALONE = Row(1.0, (), ())


class Mixing:
    """The graph of one round with its weights: `rows[i][j]` is the weight that i gives to j's value, i's own included."""

    def __init__(self, rows: Sequence[Mapping[int, float]]) -> None:
        self.n = len(rows)
        self.rows: tuple[dict[int, float], ...] = tuple(
            {j: w for j, w in sorted(row.items()) if w or j == i} for i, row in enumerate(rows)
        )

    @classmethod
    def undirected(cls, n: int, edges: Iterable[Arc], weights: Rule = metropolis) -> Mixing:
        """From edges (i, j), each both ways; a rule makes the weights. Raises TopologyError on an edge to nowhere."""
        near = adjacency(n, edges)
        weight = weights(near)
        return cls([filled(i, {j: weight(i, j) for j in near[i]}) for i in range(n)])

    @classmethod
    def directed(cls, n: int, weights: Mapping[Arc, float]) -> Mixing:
        """From {(receiver, sender): weight}. A node without an own (i, i) keeps what its row leaves."""
        rows: list[dict[int, float]] = [{} for _ in range(n)]
        for (receiver, sender), weight in weights.items():
            rows[_known(n, receiver, sender)[0]][sender] = weight
        return cls([filled(i, row) for i, row in enumerate(rows)])

    @classmethod
    def push(cls, n: int, arcs: Iterable[Arc]) -> Mixing:
        """From arcs (receiver, sender), for push-sum: a sender splits itself evenly over its receivers and itself."""
        sends: list[set[int]] = [{i} for i in range(n)]
        for receiver, sender in arcs:
            sends[_known(n, receiver, sender)[1]].add(receiver)
        rows: list[dict[int, float]] = [{} for _ in range(n)]
        for sender, receivers in enumerate(sends):
            for receiver in receivers:
                rows[receiver][sender] = 1 / len(receivers)
        return cls(rows)

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Mixing:
        """From every node's row; the outs must say the same as the ins and aren't looked at."""
        return cls([{i: row.self_weight, **dict(row.ins)} for i, row in enumerate(rows)])

    @cached_property
    def columns(self) -> tuple[dict[int, float], ...]:
        """`columns[j][i]` is the weight that i gives to j's value."""
        out: list[dict[int, float]] = [{} for _ in range(self.n)]
        for i, row in enumerate(self.rows):
            for j, weight in row.items():
                out[j][i] = weight
        return tuple(out)

    def row(self, index: int) -> Row:
        """Node `index`'s part."""
        row, column = self.rows[index], self.columns[index]
        return Row(
            row.get(index, 0.0),
            tuple((j, w) for j, w in column.items() if j != index),
            tuple((j, w) for j, w in row.items() if j != index),
        )

    def matrix(self) -> np.ndarray:
        """The dense (n, n) matrix, for analysis and tests."""
        out = np.zeros((self.n, self.n))
        for i, row in enumerate(self.rows):
            for j, weight in row.items():
                out[i, j] = weight
        return out

    def validate(self, names: Sequence[str] | None = None) -> Mixing:
        """Itself, if every weight is sound and the rows (or, for push-sum, the columns) sum to 1; else TopologyError."""
        label = [f"{i} ({names[i]})" if names else f"{i}" for i in range(self.n)]
        for i, row in enumerate(self.rows):
            _check_weights(row, label, i)
        wrong = _first_wrong(self.rows)
        if wrong is not None and _first_wrong(self.columns) is not None:
            total = math.fsum(self.rows[wrong].values())
            raise TopologyError(
                f"row {label[wrong]} sums to {total:.12g}, not 1, and the columns don't sum to 1 either; "
                f"leave the self weights out to have them filled in, or use Mixing.push for a directed graph"
            )
        return self

    @property
    def symmetric(self) -> bool:
        """w_ij = w_ji."""
        return all(abs(self.rows[j].get(i, 0.0) - w) <= TOLERANCE for i, row in enumerate(self.rows) for j, w in row.items())

    @property
    def mean_preserving(self) -> bool:
        """Columns sum to 1."""
        return _first_wrong(self.columns) is None

    @property
    def doubly_stochastic(self) -> bool:
        """Rows and columns sum to 1."""
        return _first_wrong(self.rows) is None and self.mean_preserving

    @property
    def regular(self) -> bool:
        """All have equally many partners to hear from, and equally many to send to."""
        return all(len({sum(j != i for j in line) for i, line in enumerate(lines)}) <= 1 for lines in (self.rows, self.columns))

    @property
    def one_way(self) -> bool:
        """Somebody gives weight to a node that gives none back."""
        return any(i not in self.rows[j] for i, row in enumerate(self.rows) for j in row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mixing) and self.rows == other.rows

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Mixing(n={self.n}, entries={sum(map(len, self.rows))})"


def adjacency(n: int, edges: Iterable[Arc]) -> list[list[int]]:
    """Sorted neighbour lists; loops and doubles fall away."""
    near: list[set[int]] = [set() for _ in range(n)]
    for i, j in edges:
        _known(n, i, j)
        if i != j:
            near[i].add(j)
            near[j].add(i)
    return [sorted(s) for s in near]


def filled(index: int, row: Mapping[int, float]) -> dict[int, float]:
    """The row with its self weight: what the others leave, unless it is given."""
    return dict(row) if index in row else {**row, index: rest(row.values())}


def rest(weights: Iterable[float]) -> float:
    """What the weights leave of 1; a rounding error below zero counts as zero."""
    left = 1 - math.fsum(weights)
    return 0.0 if -1e-15 < left < 0 else left


def _known(n: int, *ends: int) -> tuple[int, ...]:
    for end in ends:
        if not isinstance(end, (int, np.integer)) or not 0 <= end < n:
            raise TopologyError(f"edge {ends} names member {end!r}, but the {n} members are numbered 0 to {n - 1}")
    return ends


def _check_weights(row: Mapping[int, float], label: Sequence[str], i: int) -> None:
    for j, weight in row.items():
        if not isinstance(j, (int, np.integer)) or not 0 <= j < len(label):
            raise TopologyError(f"row {label[i]} names member {j!r}, but members are numbered 0 to {len(label) - 1}")
        if not math.isfinite(weight) or weight < 0:
            what = "its self weight" if i == j else f"its weight for {label[j]}"
            raise TopologyError(f"row {label[i]}: {what} is {weight:.6g}; weights must be 0 or more, and finite")


def _first_wrong(lines: Sequence[Mapping[int, float]]) -> int | None:
    return next((i for i, line in enumerate(lines) if abs(math.fsum(line.values()) - 1) > TOLERANCE), None)
