"""Names of topologies: from "base:k=2" to a topology and back.

A name is a built-in family, one registered by a decorator or by an entry point of the group `starlings.topologies`, or
`module:Class`, where the class may also be a function (members, round) -> Mixing, a networkx graph or a ready topology.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from topology.base import Member, Mixing, Topology
from topology.errors import SpecError
from topology.specs import Registry

if TYPE_CHECKING:
    import networkx

LOCAL_ONLY = ("file",)
"""Built in, but what they mean depends on this machine: a peer may not name them."""

_Family = TypeVar("_Family", bound=type[Topology])
MixingFunction = Callable[[Sequence[Member], int], Mixing]

_registry: Registry[Topology] = Registry(Topology, "topology", "starlings.topologies", "topology.families")  # type: ignore[type-abstract]


def register(name: str) -> Callable[[_Family], _Family]:
    """Class decorator: from now on `make(name)` builds it."""
    return _registry.register(name)


def names() -> tuple[str, ...]:
    """All that can be made by name, sorted."""
    return _registry.names()


def family(name: str) -> type[Topology]:
    """The class of that name. Raises SpecError with the nearest names."""
    return _registry.named(name)


def catalog() -> dict[str, tuple[dict[str, str], str]]:
    """Each name with its parameters (and their defaults) and the first sentence of what it is."""
    return {name: (_registry.parameters(name), _summary(family(name))) for name in names()}


def make(spec: str | Topology | MixingFunction | networkx.Graph[Any], *, builtin_only: bool = False) -> Topology:
    """The topology of a spec: a name with parameters, a topology, a function (members, round) -> Mixing, a networkx graph.

    `builtin_only` is for specs that come from a peer: nothing is imported or read for those.
    Raises SpecError for a wrong name or parameter, TopologyError for a wrong graph; both say what would do.
    """
    if builtin_only and isinstance(spec, str) and spec.partition(":")[0] in LOCAL_ONLY:
        raise SpecError(f"the swarm's topology {spec!r} is a file of another machine; name your copy yourself")
    return _registry.make(spec, builtin_only=builtin_only, wrap=_wrap)  # type: ignore[arg-type]


def nested(spec: str) -> Topology:
    """A topology that is named inside another's spec. Built-in ones only, as the whole spec may come from a peer."""
    if spec.partition(":")[0] not in _registry.builtin or spec.partition(":")[0] in LOCAL_ONLY:
        raise SpecError(f"inside another topology only a built-in one can stand, not {spec!r}")
    return make(spec, builtin_only=True)


def spec_of(topology: Topology) -> str:
    """The canonical spec: the name and the parameters that differ from their defaults; for a graph or a function, which no
    name makes, what it is, in angle brackets."""
    return _registry.spec_of(topology)


def _summary(cls: type[Topology]) -> str:
    text = " ".join((cls.__doc__ or "").split())
    return re.split(r"(?<![. ])\.(?= |$)", text, maxsplit=1)[0]  # a full stop, not an ellipsis


def _wrap(thing: object) -> Topology:
    from topology.custom import Function, from_networkx

    if hasattr(thing, "is_directed") and hasattr(thing, "edges"):
        return from_networkx(thing)
    if callable(thing) and not isinstance(thing, type):
        return Function(thing)
    raise SpecError(f"{thing!r} is a {type(thing).__name__}; a topology is a name, a Topology, a function or a networkx graph")
