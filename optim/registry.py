"""Names: from "gossip:deadline=off" to an algorithm and back, in the same grammar as topologies.

A name is built in, registered by a decorator or by an entry point of the group `starlings.algorithms`, or `module:Class`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from optim.algorithm import Algorithm
from topology.specs import Registry

_A = TypeVar("_A", bound=type[Algorithm])

_registry: Registry[Algorithm] = Registry(Algorithm, "algorithm", "starlings.algorithms", "optim.builtin")


def register(name: str) -> Callable[[_A], _A]:
    """Class decorator: from now on `make(name)` builds it."""
    return _registry.register(name)


def make(spec: str | Algorithm, *, builtin_only: bool = False) -> Algorithm:
    """The algorithm of a spec; `builtin_only` is for specs that a peer names. Raises SpecError with the nearest names."""
    return _registry.make(spec, builtin_only=builtin_only)


def names() -> tuple[str, ...]:
    """All that can be made by name, sorted."""
    return _registry.names()


def spec_of(algorithm: Algorithm) -> str:
    """The canonical spec: the name and the parameters that differ from their defaults."""
    return _registry.spec_of(algorithm)
