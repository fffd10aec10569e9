"""A learning rate schedule handed over to a joiner, as JSON: what JSON can't hold (functions) stays the joiner's own."""

from __future__ import annotations

import json

from torch.optim.lr_scheduler import LRScheduler

from p2p.errors import StateError


def dump(scheduler: LRScheduler) -> str:
    """What of the schedule's state can travel."""
    return json.dumps({key: value for key, value in scheduler.state_dict().items() if _plain(value)})


def load(scheduler: LRScheduler, text: str) -> None:
    """Take a donor's state over, and its learning rates. Raises StateError where it is another kind of schedule."""
    own = scheduler.state_dict()
    try:
        theirs = json.loads(text)
        if not set(theirs) <= set(own):
            raise ValueError(f"unknown entries {sorted(set(theirs) - set(own))}")
        scheduler.load_state_dict(own | theirs)
        for group, rate in zip(scheduler.optimizer.param_groups, scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StateError(
            f"the donor's schedule does not fit this node's {type(scheduler).__name__}: {error}; give all nodes the same"
        ) from None


def _plain(value: object) -> bool:
    """Whether JSON gives it back as it is."""
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    return value is None or isinstance(value, bool | int | float | str)
