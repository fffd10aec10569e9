"""What holds of a mixing, looked up in its numbers; and what a topology keeps over its first rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from topology.base import Member, Properties, Topology
from topology.errors import TopologyError
from topology.mixing import TOLERANCE, Mixing

ROUNDS = 64
"""How far a topology that declares nothing is looked at."""
DENSE_MAX = 512
"""Members up to which products and eigenvalues are computed."""


def canonical(n: int, sites: int = 1) -> tuple[Member, ...]:
    """n members for analysis and fingerprints: m0, m1 ... (zero-padded so that they sort), in runs over the sites."""
    width = len(str(max(n - 1, 0)))
    return tuple(Member(f"m{i:0{width}d}", f"site{i * sites // n}" if sites > 1 else "") for i in range(n))


def groups(n: int, mixings: Iterable[Mixing]) -> list[list[int]]:
    """The parts that never hear of each other over these rounds, whatever the direction; one part means connected."""
    parent = list(range(n))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    left = n
    for mixing in mixings:
        for i, row in enumerate(mixing.rows):
            for j in row:
                a, b = root(i), root(j)
                left -= a != b
                parent[a] = b
        if left == 1:
            break
    parts: dict[int, list[int]] = {}
    for i in range(n):
        parts.setdefault(root(i), []).append(i)
    return sorted(parts.values(), key=len, reverse=True)


def product(mixings: Sequence[Mixing]) -> np.ndarray:
    """The dense product, the last round leftmost."""
    out = np.eye(mixings[0].n)
    for mixing in mixings:
        out = mixing.matrix() @ out
    return out


def measured(topology: Topology, n: int, rounds: int = ROUNDS) -> Properties:
    """The properties that hold over the first rounds with n canonical members."""
    members = canonical(n)
    mixings = [topology.whole(members, t) for t in range(rounds)]
    period = next(
        (p for p in range(1, rounds // 2 + 1) if all(a == b for a, b in zip(mixings, mixings[p:], strict=False))), None
    )
    symmetric = all(m.symmetric for m in mixings)
    dense = n <= DENSE_MAX
    exact = dense and period is not None and bool(np.abs(product(mixings[:period]) - 1 / n).max() < TOLERANCE)
    smallest = float(np.linalg.eigvalsh(mixings[0].matrix())[0]) if dense and symmetric and period == 1 else None
    return Properties(
        symmetric=symmetric,
        doubly_stochastic=all(m.doubly_stochastic for m in mixings),
        mean_preserving=all(m.mean_preserving for m in mixings),
        regular=all(m.regular for m in mixings),
        directed=any(m.one_way for m in mixings),
        period=period,
        finite_time=exact,
        tree=period == 1 and is_tree(mixings[0]),
        smallest_eigenvalue=smallest,
    )


def is_tree(mixing: Mixing) -> bool:
    """Whether its edges, each both ways, connect everybody without a cycle."""
    edges = sum(len(row.keys() - {i}) for i, row in enumerate(mixing.rows))
    return edges == 2 * (mixing.n - 1) and not mixing.one_way and len(groups(mixing.n, [mixing])) == 1


def cut_off(topology: Topology, members: Sequence[Member]) -> list[str]:
    """Ids that the largest connected part never reaches, in a period or in the first ROUNDS where there is none."""
    period = topology.properties(len(members)).period or ROUNDS
    mixings = (topology.whole(members, t) for t in range(period))
    return [members[i].id for part in groups(len(members), mixings)[1:] for i in part]


def check(topology: Topology, members: Sequence[Member]) -> None:
    """Raises TopologyError if the topology can't take these members, is wrong in a round, or cuts somebody off."""
    if cut := cut_off(topology, members):
        raise TopologyError(f"the topology never reaches {', '.join(cut)}; add an edge from them to the others, in any round")
