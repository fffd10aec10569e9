"""Whether an algorithm converges on a topology: what the one needs, the other must be; a pair that can't is refused."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optim.algorithm import Algorithm
from optim.registry import make as make_algorithm
from optim.registry import names, spec_of
from topology import SpecError, Topology, canonical, make
from topology import spec_of as topology_spec

ALTERNATIVES = ("one-peer-exponential", "exponential", "ring", "base", "complete", "binary-tree")
"""Topologies that are offered instead, in this order, after the own one with lazy weights."""
DENSE_MAX = 512
"""Members up to which eigenvalues that a topology doesn't know are computed."""
MARGIN = 1e-9
"""By which an eigenvalue must clear its bound: computed ones are that exact."""


class Incompatible(ValueError):
    """This algorithm can't converge on this topology; says which property is missing and which pair works."""


def missing(algorithm: Algorithm, topology: Topology, n: int) -> list[str]:
    """What the algorithm needs and the topology lacks with n members, in words."""
    if n < 2 or topology.refuses(n):
        return []
    properties = topology.properties(n)
    lacking = sorted(need.replace("_", " ") for need in algorithm.needs if not getattr(properties, need))
    bound = algorithm.eigenvalue_above
    if bound is not None and not lacking and smallest_eigenvalue(topology, n) < bound + MARGIN:
        lacking.append(f"without eigenvalues down to {bound:.4g}")
    return lacking


def smallest_eigenvalue(topology: Topology, n: int) -> float:
    """Of a symmetric static mixing with n members; -1, the worst, where there are too many to compute it."""
    known = topology.properties(n).smallest_eigenvalue
    if known is not None:
        return known
    return float(np.linalg.eigvalsh(topology.whole(canonical(n), 0).matrix())[0]) if n <= DENSE_MAX else -1.0


def check(algorithm: Algorithm, topology: Topology, n: int) -> None:
    """Raises Incompatible unless the pair can converge with n members; n that the topology refuses is another question."""
    lacking = missing(algorithm, topology, n)
    if not lacking:
        return
    raise Incompatible(
        f"algorithm {spec_of(algorithm)!r} needs a topology that is {', '.join(lacking)}, and {topology_spec(topology)!r} with "
        f"{n} members is not; use --topology {next(_topologies(algorithm, topology, n))}, "
        f"or --algorithm {next(_algorithms(topology, n))}"
    )


def _topologies(algorithm: Algorithm, topology: Topology, n: int) -> Iterator[str]:
    """Those that do, the nearest first."""
    head = topology_spec(topology).partition(":")[0]
    for name in (f"{head}:weights=lazy", *ALTERNATIVES, "ring:weights=lazy"):
        try:
            if not make(name).refuses(n) and not missing(algorithm, make(name), n):
                yield name
        except SpecError:  # it has no weights to choose
            continue


def _algorithms(topology: Topology, n: int) -> Iterator[str]:
    return (name for name in ("gossip", "async", *names()) if not missing(make_algorithm(name), topology, n))
