"""Whether an algorithm converges on a topology: what the one needs, the other must be; a pair that can't is refused."""

from __future__ import annotations

from collections.abc import Iterator

from optim.algorithm import Algorithm
from optim.registry import make as make_algorithm
from optim.registry import names, spec_of
from topology import Topology, make
from topology import spec_of as topology_spec

ALTERNATIVES = ("one-peer-exponential", "exponential", "ring", "complete")
"""Topologies that are offered instead, in this order."""


class Incompatible(ValueError):
    """This algorithm can't converge on this topology; says which property is missing and which pair works."""


def missing(algorithm: Algorithm, topology: Topology, n: int) -> list[str]:
    """Names of the properties that the algorithm needs and the topology lacks with n members."""
    if not algorithm.needs or topology.refuses(n):
        return []
    properties = topology.properties(n)
    return sorted(need for need in algorithm.needs if not getattr(properties, need))


def check(algorithm: Algorithm, topology: Topology, n: int) -> None:
    """Raises Incompatible unless the pair can converge with n members; n that the topology refuses is another question."""
    lacking = missing(algorithm, topology, n)
    if not lacking:
        return
    what = ", ".join(need.replace("_", " ") for need in lacking)
    raise Incompatible(
        f"algorithm {spec_of(algorithm)!r} needs a topology that is {what}, and {topology_spec(topology)!r} with {n} members "
        f"is not; use --topology {next(_topologies(algorithm, n))}, or --algorithm {next(_algorithms(topology, n))}"
    )


def _topologies(algorithm: Algorithm, n: int) -> Iterator[str]:
    return (name for name in ALTERNATIVES if not missing(algorithm, make(name), n))


def _algorithms(topology: Topology, n: int) -> Iterator[str]:
    return (name for name in ("async", *names()) if not missing(make_algorithm(name), topology, n))
