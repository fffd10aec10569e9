"""What the next step depends on, gathered for a checkpoint and put back: model, optimizers, algorithm, random generators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from p2p.errors import StateError
from p2p.state import rng
from p2p.state.checkpoint import Saved
from p2p.state.method import Held, Method
from p2p.state.tree import fell, grow


def capture(step: int, model: nn.Module, optimizers: Sequence[Optimizer], method: Method, rest: Mapping[str, Any]) -> Saved:
    """As it is now, the tensors not copied, but for `groups`; `rest` is what else state.json shall hold.

    Raises StateError where an optimizer's state can't be kept.
    """
    tensors, names = _tensors(model)
    others = _algorithm(method)
    kept = [
        fell({"state": optimizer.state_dict()["state"]}, f"optimizer.{i}", others) for i, optimizer in enumerate(optimizers)
    ]
    persistent = {_plain(name) for name in model.state_dict()}
    state = {
        **rest,
        "step": step,
        "kinds": [type(optimizer).__name__ for optimizer in optimizers],
        "optimizers": kept,
        "since": method.since,
        "generators": rng.state(),
        "tied": {name: first for name, first in names.items() if name != first},
        "transient": sorted(set(names) - persistent),
    }
    return Saved(step, tensors, others, state)


def groups(optimizers: Sequence[Optimizer], tensors: dict[str, Tensor]) -> list[Any]:
    """The optimizers' learning rates and other settings; those that are tensors go to `tensors`, copied."""
    found: dict[str, Tensor] = {}
    kept = [fell(optimizer.state_dict()["param_groups"], f"groups.{i}", found) for i, optimizer in enumerate(optimizers)]
    tensors.update({name: tensor.detach().to("cpu", copy=True) for name, tensor in found.items()})
    return kept


@torch.no_grad()
def restore(saved: Saved, model: nn.Module, optimizers: Sequence[Optimizer], method: Method) -> None:
    """All of it, into the tensors that are there. Raises StateError, before anything is written, where it does not fit."""
    tensors, _ = _tensors(model)
    algorithm = _algorithm(method)
    _fits(saved.model, tensors)
    _fits({name: tensor for name, tensor in saved.optimizer.items() if name.startswith("algorithm.")}, algorithm)
    kinds = [type(optimizer).__name__ for optimizer in optimizers]
    if saved.state.get("kinds") != kinds:
        raise StateError(f"the checkpoint was written with {saved.state.get('kinds')}; here it is {kinds}")
    try:
        for optimizer, felled, group in zip(optimizers, saved.state["optimizers"], saved.state["groups"], strict=True):
            optimizer.load_state_dict(grow(felled, saved.optimizer) | {"param_groups": grow(group, saved.optimizer)})
        since = int(saved.state["since"])
    except (KeyError, ValueError, TypeError) as error:
        raise StateError(f"the optimizer's state does not fit: {error}") from None
    for name, tensor in tensors.items():
        tensor.copy_(saved.model[name])
    for name, tensor in algorithm.items():
        tensor.copy_(saved.optimizer[name])
    method.resumed(since)


def _tensors(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Parameters and buffers under their first names; and for every name that one."""
    firsts: dict[int, str] = {}
    tensors: dict[str, Tensor] = {}
    names: dict[str, str] = {}
    for members in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, tensor in members:
            plain = _plain(name)
            names[plain] = firsts.setdefault(id(tensor), plain)
            tensors.setdefault(names[plain], tensor.detach())
    return tensors, names


def _plain(name: str) -> str:
    """torch.compile's wrapper adds nothing to a name."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def _algorithm(method: Method) -> dict[str, Tensor]:
    """The algorithm's own tensors, shared or not."""
    held = {source.name: source.tensor for source in method.sources if isinstance(source, Held)}
    return held | {f"algorithm.local.{name}": tensor for name, tensor in method.local().items()}


def _fits(saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    for name in [*own, *saved]:
        if name not in saved or name not in own:
            raise StateError(f"{name} is {'not in the checkpoint' if name in own else 'in the checkpoint alone'}")
        if saved[name].shape != own[name].shape or saved[name].dtype != own[name].dtype:
            raise StateError(
                f"{name} is {saved[name].dtype} {tuple(saved[name].shape)} in the checkpoint, "
                f"here {own[name].dtype} {tuple(own[name].shape)}"
            )
