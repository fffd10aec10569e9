"""What `join` was given beside model and optimizer, the learning rate schedule and the GradScaler, as JSON.

For joiners and checkpoints. What JSON can't hold (a schedule's functions) stays the node's own.
"""

from __future__ import annotations

import json
from typing import Any

from torch.amp import GradScaler
from torch.optim.lr_scheduler import LRScheduler

from p2p.errors import StateError


def dump(scheduler: LRScheduler | None, scaler: GradScaler | None) -> str:
    """What of their states can travel; empty where there is neither."""
    found: dict[str, Any] = {}
    if scheduler is not None:
        found["scheduler"] = {key: value for key, value in scheduler.state_dict().items() if _plain(value)}
    if scaler is not None:
        found["scaler"] = scaler.state_dict()
    return json.dumps(found) if found else ""


def load(text: str, scheduler: LRScheduler | None, scaler: GradScaler | None) -> None:
    """Take a state over, and its learning rates. Raises StateError where it is another kind of schedule."""
    if not text:
        return
    try:
        found = json.loads(text)
        if scheduler is not None and "scheduler" in found:
            _schedule(scheduler, found["scheduler"])
        if scaler is not None and found.get("scaler"):
            scaler.load_state_dict(found["scaler"])
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, RecursionError) as error:
        kind = type(scheduler or scaler).__name__
        raise StateError(f"the donor's schedule does not fit this node's {kind}: {error}; give all nodes the same") from None


def _schedule(scheduler: LRScheduler, theirs: dict[str, Any]) -> None:
    own = scheduler.state_dict()
    if not set(theirs) <= set(own):
        raise ValueError(f"unknown entries {sorted(set(theirs) - set(own))}")
    scheduler.load_state_dict(own | theirs)
    for group, rate in zip(scheduler.optimizer.param_groups, scheduler.get_last_lr(), strict=True):
        group["lr"] = rate


def _plain(value: object) -> bool:
    """Whether JSON gives it back as it is."""
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    return value is None or isinstance(value, bool | int | float | str)
