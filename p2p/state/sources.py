"""Where the shared tensors are: in the model's modules, and in the optimizers' states.

Both may replace a tensor at any time (`load_state_dict`, `param.data = ...`), so a source knows the place and reads it anew.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from optim.kinds import Group, Kind, lay_out, scalar_dtype, slots
from p2p.errors import StateError

log = logging.getLogger("starlings")

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (*HALVES, torch.float32, torch.float64)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class Source(Protocol):
    """One shared tensor's place."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    dtype: torch.dtype
    in_model: bool  # else in an optimizer
    owner: str  # the parameter that it is, or belongs to; none for a buffer

    @property
    def brought(self) -> Tensor | None:
        """To which each change that an exchange makes to this tensor is added, where somebody asks; of its shape and device."""

    def read(self) -> Tensor | None:
        """The tensor that is there now; None for optimizer state that doesn't exist yet."""

    def create(self) -> Tensor:
        """Lay the optimizer's state for this parameter out as its first step would, and return this part of it."""


class ModelSource:
    """A parameter or buffer, by its place in a module."""

    in_model = True
    brought = None

    def __init__(self, name: str, kind: Kind, module: nn.Module, key: str) -> None:
        self.name, self.kind = name, kind
        self.owner = name if kind is Kind.PARAMETER else ""
        self._module, self._key = module, key
        tensor = self.create()
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype

    def read(self) -> Tensor | None:
        tensor = self._module._parameters.get(self._key)
        return self._module._buffers.get(self._key) if tensor is None else tensor

    def create(self) -> Tensor:
        tensor = self.read()
        if tensor is None:
            raise StateError(f"{self.name} is no longer in the model; what is shared is fixed when a node joins")
        return tensor


class OptimizerSource:
    """One entry of an optimizer's state for one parameter."""

    in_model = False

    def __init__(
        self, name: str, owner: str, kind: Kind, optimizer: Optimizer, parameter: Tensor, key: str, dtype: torch.dtype
    ) -> None:
        self.name, self.owner, self.kind, self.dtype = name, owner, kind, dtype
        self.place = parameter, key
        self._optimizer, self._parameter, self._key = optimizer, parameter, key
        self.brought: Tensor | None = None
        self.shape = () if kind is Kind.COUNTER else tuple(parameter.shape)

    def read(self) -> Tensor | None:
        state = self._optimizer.state.get(self._parameter)
        found = state.get(self._key) if state else None
        return found if isinstance(found, Tensor) else None

    def create(self) -> Tensor:
        lay_out(self._optimizer, self._parameter)
        created: Tensor = self._optimizer.state[self._parameter][self._key]
        return created


def collect(model: nn.Module, optimizers: Sequence[Optimizer], *, state: bool = True) -> list[Source]:
    """All that is shared, in a fixed order: trainable parameters, buffers, then (if `state`) optimizer state.

    Tied tensors count once, under their first name; frozen and empty ones are left out. Raises `StateError` where memory
    overlaps otherwise, or a parameter's dtype can't be mixed.
    """
    parameters = dict(_parameters(model))
    in_model = [*parameters.values(), *_buffers(model)]
    untied = _untied(in_model)
    kept = [source for source in in_model if source in untied]
    if not state:
        return list(kept)
    return [*kept, *_optimizer_states({p: s.name for p, s in parameters.items() if s in untied}, optimizers)]


def _places(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules with the prefix of their tensors; torch.compile's wrapper adds nothing to a name."""
    for name, module in model.named_modules():
        path = [part for part in name.split(".") if part and part != "_orig_mod"]
        yield ".".join([*path, ""]), module


def _parameters(model: nn.Module) -> Iterator[tuple[Tensor, ModelSource]]:
    seen: set[Tensor] = set()
    for prefix, module in _places(model):
        for key, parameter in module._parameters.items():
            if parameter is None or parameter in seen or not parameter.requires_grad or not parameter.numel():
                continue
            seen.add(parameter)
            if parameter.dtype not in FLOATS:
                raise StateError(f"{prefix}{key} is {parameter.dtype}: parameters must be 16, 32 or 64 bit floats, or frozen")
            yield parameter, ModelSource(prefix + key, Kind.PARAMETER, module, key)


def _buffers(model: nn.Module) -> Iterator[ModelSource]:
    seen: set[Tensor] = set()
    for prefix, module in _places(model):
        for key, buffer in module._buffers.items():
            if buffer is None or buffer in seen or not buffer.numel():
                continue
            seen.add(buffer)
            if buffer.dtype in FLOATS:
                kind = Kind.NONNEGATIVE if key == "running_var" else Kind.BUFFER
                yield ModelSource(prefix + key, kind, module, key)
            elif buffer.dtype in INTEGERS:
                yield ModelSource(prefix + key, Kind.NEWEST, module, key)
            else:
                log.warning("buffer %s%s stays local: %s can't be mixed", prefix, key, buffer.dtype)


def _untied(sources: Sequence[ModelSource]) -> set[ModelSource]:
    """The sources less those that name an earlier one's memory again."""
    kept: dict[tuple[object, ...], ModelSource] = {}
    for source in sources:
        tensor = source.create()
        kept.setdefault((tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()), source)
    storages = Counter(source.create().untyped_storage().data_ptr() for source in kept.values())
    owners: dict[int, Tensor] = {}
    for source in kept.values():
        tensor = source.create()
        _refuse_expanded(source.name, tensor)
        if storages[tensor.untyped_storage().data_ptr()] > 1:  # a map of its bytes is as large as the storage
            _claim(source.name, tensor, owners)
    return set(kept.values())


def _refuse_expanded(name: str, tensor: Tensor) -> None:
    if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)):
        raise StateError(f"{name} is an expanded view, several of its elements are one: register {name}.contiguous() instead")


def _claim(name: str, tensor: Tensor, owners: dict[int, Tensor]) -> None:
    """Mark the bytes of `tensor` as owned, per storage; raises `StateError` where some are already."""
    storage, size = tensor.untyped_storage(), tensor.element_size()
    if storage.data_ptr() not in owners:
        owners[storage.data_ptr()] = torch.zeros(storage.nbytes(), dtype=torch.bool)
    stride = [step * size for step in tensor.stride()]
    part = owners[storage.data_ptr()].as_strided((*tensor.shape, size), (*stride, 1), tensor.storage_offset() * size)
    if part.any():
        raise StateError(f"{name} overlaps another shared tensor in part: tie tensors whole or not at all")
    part.fill_(True)


def _optimizer_states(names: dict[Tensor, str], optimizers: Sequence[Optimizer]) -> Iterator[Source]:
    for index, optimizer in enumerate(optimizers):
        prefix = "optimizer" if len(optimizers) == 1 else f"optimizer.{index}"
        groups = {p: group for group in optimizer.param_groups for p in group["params"]}
        if slots(optimizer, optimizer.param_groups[0]) is None:
            log.warning("the state of %s stays local: its kinds are not known", type(optimizer).__name__)
        for parameter, name in names.items():
            if parameter in groups:
                yield from _states(f"{prefix}.{name}", name, optimizer, groups[parameter], parameter)


def _states(prefix: str, owner: str, optimizer: Optimizer, group: Group, parameter: Tensor) -> Iterator[Source]:
    """The shared entries of one parameter's state, there already or not."""
    for slot in slots(optimizer, group) or ():
        if slot.kind is not None:
            there = optimizer.state.get(parameter, {}).get(slot.key)
            expected = scalar_dtype(group) if slot.scalar else parameter.dtype
            dtype = there.dtype if isinstance(there, Tensor) else expected
            yield OptimizerSource(f"{prefix}.{slot.key}", owner, slot.kind, optimizer, parameter, slot.key, dtype)
