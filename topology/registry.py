"""Names: from "base:k=2" to a topology and back.

A name is a built-in family, one registered by a decorator or an entry point of the group `starlings.topologies`, or
`module:Class` (a class, a function (members, round) -> Mixing, or a ready topology). Parameters follow as `:key=value,...`.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from topology.base import Member, Mixing, Topology
from topology.errors import TopologyError

if typing.TYPE_CHECKING:
    import networkx

ENTRY_POINTS = "starlings.topologies"
LOCAL_ONLY = {"file"}
"""Built in, but what they mean depends on this machine: a peer may not name them."""

_families: dict[str, type[Topology]] = {}
_Family = TypeVar("_Family", bound=type[Topology])
MixingFunction = Callable[[Sequence[Member], int], Mixing]


def register(name: str) -> Callable[[_Family], _Family]:
    """Class decorator: from now on `make(name)` builds it."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise TopologyError(f"{name!r} can't be a topology's name: use small letters, digits and hyphens")

    def add(family: _Family) -> _Family:
        known = _families.setdefault(name, family)
        if (known.__module__, known.__qualname__) != (family.__module__, family.__qualname__):
            raise TopologyError(f"topology {name!r} is taken by {known.__module__}:{known.__qualname__}; choose another name")
        _families[name], family.name = family, name
        return family

    return add


def names() -> tuple[str, ...]:
    """All that can be made by name, sorted."""
    return tuple(sorted({*_built_in(), *_families, *_plugins()}))


def family(name: str) -> type[Topology]:
    """The class of that name. Raises TopologyError with the nearest names."""
    if name not in _built_in() and name not in _families and name in _plugins():
        register(name)(_plugins()[name].load())
    if name in _families:
        return _families[name]
    close = difflib.get_close_matches(name, names(), n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(names())}"
    raise TopologyError(f"there is no topology {name!r}; {hint} Your own is named module:Class")


def make(spec: str | Topology | MixingFunction | networkx.Graph[Any], *, builtin_only: bool = False) -> Topology:
    """The topology of a spec: a name with parameters, a topology, a function (members, round) -> Mixing, a networkx graph.

    `builtin_only` is for specs that come from a peer: nothing is imported or read for those.
    Raises TopologyError, which says what is wrong and what would do.
    """
    if not isinstance(spec, str):
        return _wrap(spec)
    head, _, rest = spec.strip().partition(":")
    if builtin_only and (head not in _built_in() or head in LOCAL_ONLY):
        raise TopologyError(f"the swarm's topology {spec!r} is not a built-in one; name it yourself: --topology {spec}")
    if rest and "=" not in rest.partition(":")[0]:
        attribute, _, parameters = rest.partition(":")
        return _wrap(_load(head, attribute), parameters, spec)
    return build(family(head), rest, spec)


def build(factory: type[Topology], parameters: str, spec: str) -> Topology:
    """An instance with parameters given as "key=value,key=value"."""
    known = _parameters(factory)
    given: dict[str, Any] = {}
    for item in filter(None, parameters.split(",")):
        key, equals, text = (part.strip() for part in item.partition("="))
        if not equals or key not in known or key in given:
            takes = ", ".join(known) or "no parameters"
            raise TopologyError(
                f"{spec!r}: can't use {item!r}; {spec.partition(':')[0]} takes {takes}, each once, as key=value"
            )
        given[key] = _convert(text, known[key], f"{spec!r}: {key}")
    missing = _required(factory) - given.keys()
    if missing:
        raise TopologyError(f"{spec!r} needs {', '.join(sorted(missing))}, as in {spec.partition(':')[0]}:{min(missing)}=...")
    return factory(**given)


def spec_of(topology: Topology) -> str:
    """The canonical spec: name and the parameters that differ from their defaults. A graph or a function has no spec, but a
    name in angle brackets."""
    name = topology.name or f"{type(topology).__module__}:{type(topology).__qualname__}"
    if not dataclasses.is_dataclass(topology):
        return name
    parts = []
    for field in dataclasses.fields(topology):
        value = getattr(topology, field.name)
        if field.init and field.repr and value != field.default:
            parts.append(f"{field.name}={_text(value)}")
    return f"{name}:{','.join(parts)}" if parts else name


def _wrap(thing: object, parameters: str = "", spec: str = "") -> Topology:
    """A Topology from whatever a user may hand in."""
    from topology.custom import Function, from_networkx

    if isinstance(thing, type) and issubclass(thing, Topology):
        return build(thing, parameters, spec or thing.__qualname__)
    if parameters:
        raise TopologyError(f"{spec!r}: only a Topology class takes parameters, this is a {type(thing).__name__}")
    if isinstance(thing, Topology):
        return thing
    if hasattr(thing, "is_directed") and hasattr(thing, "edges"):
        return from_networkx(thing)
    if callable(thing) and not isinstance(thing, type):
        return Function(thing)
    raise TopologyError(
        f"{spec or thing!r} is a {type(thing).__name__}; a topology is a name, a Topology, a function or a networkx graph"
    )


def _load(module: str, attribute: str) -> object:
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise TopologyError(f"there is no module {module!r} (from {module}:{attribute}); is it on PYTHONPATH?") from error
        raise
    if not hasattr(loaded, attribute):
        close = difflib.get_close_matches(attribute, dir(loaded), n=3)
        raise TopologyError(
            f"module {module!r} has no {attribute!r}" + (f"; did you mean {' or '.join(close)}?" if close else "")
        )
    return typing.cast(object, getattr(loaded, attribute))


@cache
def _built_in() -> frozenset[str]:
    before = set(_families)
    importlib.import_module("topology.families")
    return frozenset(name for name in {*_families} - before | before if _families[name].__module__.startswith("topology."))


@cache
def _plugins() -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _parameters(factory: type[Topology]) -> dict[str, Any]:
    hints = typing.get_type_hints(factory.__init__)
    return {name: hints.get(name, str) for name in list(inspect.signature(factory.__init__).parameters)[1:]}


def _required(factory: type[Topology]) -> set[str]:
    signature = list(inspect.signature(factory.__init__).parameters.values())[1:]
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name for p in signature if p.default is p.empty and p.kind in plain}


def _convert(text: str, kind: Any, where: str) -> object:
    kinds = [k for k in (typing.get_args(kind) or (kind,)) if k is not type(None)]
    for wanted in kinds:
        try:
            return _bool(text) if wanted is bool else wanted(text)
        except ValueError:
            continue
    raise TopologyError(f"{where} must be {' or '.join(k.__name__ for k in kinds)}, not {text!r}")


def _bool(text: str) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(text.lower()) or _no(text)


def _no(text: str) -> bool:
    if text.lower() not in ("false", "no", "0"):
        raise ValueError(text)
    return False


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
