"""A run's checkpoints as one model file: the mean over its nodes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from p2p.errors import ConfigError, StateError
from p2p.state import checkpoint
from p2p.state.checkpoint import Saved

log = logging.getLogger("starlings")


@dataclass(frozen=True, slots=True)
class Exported:
    """What went into the file: node folder (or checkpoint) -> step; and what was left out, for it is too old."""

    used: Mapping[str, int]
    left_out: Mapping[str, int]


def export(run: Path, target: Path, node: int | None = None) -> Exported:
    """Write the mean of the newest readable checkpoint of each node, or of one node, as safetensors.

    Nodes that are more than two intervals behind the newest (they died, or left) are left out. Floating tensors are
    averaged in float64, integers are the newest node's. Raises StateError where nothing can be read, or shapes differ.
    """
    found = {path: saved for path in _sources(run, node) if (saved := checkpoint.newest(path)) is not None}
    if not found:
        raise StateError(f"{run} holds no checkpoint that can be read")
    last = max(found.values(), key=lambda saved: saved.step)
    oldest = last.step - 2 * int(last.state.get("every", 0))
    used = {path: saved for path, saved in found.items() if saved.step >= oldest}
    _write(target, _mean(last, [saved for saved in used.values() if saved is not last]), last)
    return Exported(
        {path.name: saved.step for path, saved in used.items()},
        {path.name: saved.step for path, saved in found.items() if path not in used},
    )


def _sources(run: Path, node: int | None) -> list[Path]:
    if node is not None:
        return [run / "checkpoints" / f"node-{node}"]
    return checkpoint.nodes(run) or [run]


def _mean(last: Saved, others: list[Saved]) -> dict[str, Tensor]:
    transient = set(last.state.get("transient", ()))
    return {name: _mean_of(name, tensor, others) for name, tensor in last.model.items() if name not in transient}


def _mean_of(name: str, tensor: Tensor, others: list[Saved]) -> Tensor:
    if any(name not in saved.model or saved.model[name].shape != tensor.shape for saved in others):
        raise StateError(f"{name} is not the same in all nodes' checkpoints: were they of one run?")
    if not tensor.is_floating_point():
        return tensor
    total = tensor.double()
    for saved in others:
        total += saved.model[name]
    return (total / (1 + len(others))).to(tensor.dtype)


def _write(target: Path, tensors: dict[str, Tensor], last: Saved) -> None:
    """Whole or not at all. Tied names are in the metadata, as safetensors' own `save_model` has it."""
    if not target.parent.is_dir():
        raise ConfigError(f"{target.parent} is no directory")
    part = target.with_name(f".{target.name}.part")
    try:
        save_file(tensors, part, metadata={"format": "pt", **{str(k): str(v) for k, v in last.state.get("tied", {}).items()}})
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
