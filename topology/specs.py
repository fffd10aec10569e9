"""Specs: "name:key=value,..." to an object and back. One grammar for all that users plug in.

A name is a built-in, one registered by a decorator or an entry point, or `module:Attribute`; parameters follow as
`:key=value,...` and go to the constructor, converted by its annotations; a value with commas stands in parentheses, as in
"matcha:graph=(regular:degree=4,seed=7),budget=0.3".
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import re
import typing
from collections.abc import Callable
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from topology.errors import SpecError

SPEC_MAX = 500
"""Characters; a peer may send one."""

Base = TypeVar("Base")
Class = TypeVar("Class", bound=type[Any])


class Registry(Generic[Base]):
    """The plug-ins of one kind. `builtin` is the module whose import registers those that a peer may name too."""

    def __init__(self, base: type[Base], noun: str, group: str, builtin: str) -> None:
        self.base = base
        self.noun = noun
        self._group = group
        self._builtin_module = builtin
        self._classes: dict[str, type[Base]] = {}

    def register(self, name: str) -> Callable[[Class], Class]:
        """Class decorator: from now on `make(name)` builds it."""
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
            raise SpecError(f"{name!r} can't be the name of a {self.noun}: use small letters, digits and hyphens")

        def add(cls: Class) -> Class:
            known = self._classes.setdefault(name, cls)
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise SpecError(f"{self.noun} {name!r} is taken by {known.__module__}:{known.__qualname__}; choose another")
            self._classes[name], cls.name = cls, name
            return cls

        return add

    def names(self) -> tuple[str, ...]:
        """All that can be made by name, sorted."""
        return tuple(sorted({*self.builtin, *self._classes, *self._plugins}))

    def named(self, name: str) -> type[Base]:
        """The class of that name. Raises SpecError with the nearest names."""
        if name not in self.builtin and name not in self._classes and name in self._plugins:
            self.register(name)(self._plugins[name].load())
        if name in self._classes:
            return self._classes[name]
        close = difflib.get_close_matches(name, self.names(), n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(self.names())}."
        raise SpecError(f"there is no {self.noun} {name!r}; {hint} Your own is named module:Class")

    def make(self, spec: str | Base, *, builtin_only: bool = False, wrap: Callable[[object], Base] | None = None) -> Base:
        """The object of a spec. `builtin_only`: a peer names it, nothing is imported. `wrap` takes what is no `base` yet."""
        if not isinstance(spec, str):
            return self._wrap(spec, "", str(spec), wrap)
        if len(spec) > SPEC_MAX:
            raise SpecError(f"a {self.noun}'s name has at most {SPEC_MAX} characters, this has {len(spec)}: {spec[:40]}...")
        head, _, rest = spec.strip().partition(":")
        if builtin_only and head not in self.builtin:
            raise SpecError(f"the swarm's {self.noun} {spec!r} is not a built-in one; name it yourself")
        if rest and "=" not in rest.partition(":")[0] and head not in self.names():
            attribute, _, parameters = rest.partition(":")
            return self._wrap(load(head, attribute), parameters, spec, wrap)
        return build(self.named(head), rest, spec)

    def parameters(self, name: str) -> dict[str, str]:
        """What the class of that name takes, each with its default as text; empty where it must be given."""
        signature = inspect.signature(self.named(name).__init__).parameters
        defaults = {key: signature[key].default for key in _parameters(self.named(name))}
        return {key: "" if value is inspect.Parameter.empty else _text(value) for key, value in defaults.items()}

    def spec_of(self, thing: Base) -> str:
        """The canonical spec: name, and the parameters that differ from their defaults."""
        name = getattr(thing, "name", "") or f"{type(thing).__module__}:{type(thing).__qualname__}"
        if not dataclasses.is_dataclass(thing):
            return str(name)
        parts = []
        for field in dataclasses.fields(thing):
            value = getattr(thing, field.name)
            if field.init and field.repr and value != field.default:
                text = _text(value)
                parts.append(f"{field.name}=({text})" if "," in text else f"{field.name}={text}")
        return f"{name}:{','.join(parts)}" if parts else str(name)

    @cached_property
    def builtin(self) -> frozenset[str]:
        """Names that come with this package."""
        importlib.import_module(self._builtin_module)
        package = self._builtin_module.partition(".")[0]
        return frozenset(n for n, cls in self._classes.items() if cls.__module__.partition(".")[0] == package)

    @cached_property
    def _plugins(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self._group)}

    def _wrap(self, thing: object, parameters: str, spec: str, wrap: Callable[[object], Base] | None) -> Base:
        if isinstance(thing, type) and issubclass(thing, self.base):
            return build(thing, parameters, spec)
        if parameters:
            raise SpecError(f"{spec!r}: only a class takes parameters, this is a {type(thing).__name__}")
        if isinstance(thing, self.base):
            return thing
        if wrap is None:
            raise SpecError(f"{spec} is a {type(thing).__name__}; a {self.noun} is a name, or a {self.base.__name__}")
        return wrap(thing)


def build(factory: type[Base], parameters: str, spec: str) -> Base:
    """An instance with parameters given as "key=value,key=value"."""
    known = _parameters(factory)
    given: dict[str, Any] = {}
    for item in filter(None, re.split(r",(?![^()]*\))", parameters)):
        key, equals, text = (part.strip() for part in item.partition("="))
        if not equals or key not in known or key in given:
            takes = ", ".join(known) or "no parameters"
            raise SpecError(f"{spec!r}: can't use {item!r}; {spec.partition(':')[0]} takes {takes}, each once, as key=value")
        given[key] = _convert(text.removeprefix("(").removesuffix(")"), known[key], f"{spec!r}: {key}")
    missing = _required(factory) - given.keys()
    if missing:
        raise SpecError(f"{spec!r} needs {', '.join(sorted(missing))}, as in {spec.partition(':')[0]}:{min(missing)}=...")
    return factory(**given)


def load(module: str, attribute: str) -> object:
    """What `module:attribute` names. Raises SpecError where there is none."""
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise SpecError(f"there is no module {module!r} (from {module}:{attribute}); is it on PYTHONPATH?") from error
        raise
    if not hasattr(loaded, attribute):
        close = difflib.get_close_matches(attribute, dir(loaded), n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise SpecError(f"module {module!r} has no {attribute!r}{hint}")
    return typing.cast(object, getattr(loaded, attribute))


def _parameters(factory: type[Any]) -> dict[str, Any]:
    """Names and types of those that text can give; an object can only be handed over in Python."""
    hints = typing.get_type_hints(factory if dataclasses.is_dataclass(factory) else factory.__init__)  # inherited ones too
    kinds = {name: hints.get(name, str) for name in list(inspect.signature(factory.__init__).parameters)[1:]}
    return {name: kind for name, kind in kinds.items() if _is_text(kind)}


def _is_text(kind: Any) -> bool:
    options = set(typing.get_args(kind) or (kind,)) - {type(None)}
    return typing.get_origin(kind) is typing.Literal or options <= {int, float, str, bool}


def _required(factory: type[Any]) -> set[str]:
    signature = list(inspect.signature(factory.__init__).parameters.values())[1:]
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name for p in signature if p.default is p.empty and p.kind in plain}


def _convert(text: str, kind: Any, where: str) -> object:
    """The text as its annotation says: a literal, bool, int, float or str, or one of several."""
    if typing.get_origin(kind) is typing.Literal:
        if text in typing.get_args(kind):
            return text
        raise SpecError(f"{where} must be {' or '.join(typing.get_args(kind))}, not {text!r}")
    kinds = [k for k in (typing.get_args(kind) or (kind,)) if k is not type(None)]
    for wanted in kinds:
        try:
            return _bool(text) if wanted is bool else _int(text) if wanted is int else wanted(text)
        except ValueError:
            continue
    raise SpecError(f"{where} must be {' or '.join(k.__name__ for k in kinds)}, not {text!r}")


def _bool(text: str) -> bool:
    words = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


def _int(text: str) -> int:
    if len(text) > 18:
        raise ValueError(text)
    return int(text)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
