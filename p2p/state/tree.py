"""Nested state (an optimizer's, a generator's) as JSON and named tensors, and back: nothing that could be executed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from p2p.errors import StateError

SCALARS = (bool, int, float, str, type(None))


def fell(tree: object, name: str, tensors: dict[str, Tensor]) -> Any:
    """The tree for JSON; its tensors go to `tensors`, under names that begin with `name`.

    Raises StateError for what is no number, text, tensor, list, tuple or dictionary of these.
    """
    if isinstance(tree, Tensor):
        tensors[name] = tree.detach()
        return {"tensor": name}
    if isinstance(tree, Mapping):
        return {"dict": [[_key(key, name), fell(value, f"{name}.{key}", tensors)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        return {type(tree).__name__: [fell(value, f"{name}.{i}", tensors) for i, value in enumerate(tree)]}
    if type(tree) in SCALARS:
        return tree
    raise StateError(f"{name} is a {type(tree).__name__}: a checkpoint holds numbers, texts, tensors, lists and dictionaries")


def grow(felled: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The tree again, with copies of the tensors. Raises StateError for what `fell` can't have made."""
    if type(felled) in SCALARS:
        return felled
    if isinstance(felled, dict) and len(felled) == 1:
        ((kind, inside),) = felled.items()
        if kind == "tensor" and inside in tensors:
            return tensors[inside].clone()
        if kind == "dict" and isinstance(inside, list) and all(isinstance(p, list) and len(p) == 2 for p in inside):
            return {_key(key, kind): grow(value, tensors) for key, value in inside}
        if kind in ("list", "tuple") and isinstance(inside, list):
            values = [grow(value, tensors) for value in inside]
            return values if kind == "list" else tuple(values)
    raise StateError(f"a state that can't be read: {str(felled)[:60]}")


def _key(key: object, name: str) -> int | str:
    if isinstance(key, int | str):
        return key
    raise StateError(f"{name} has the key {key!r}: numbers and texts can be kept")
