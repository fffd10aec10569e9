"""The global random generators of Python, numpy and torch: their states, as JSON can hold them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from p2p.errors import StateError


def state() -> dict[str, Any]:
    """Of this process, now."""
    version, numbers, gauss = random.getstate()
    legacy: Any = np.random.get_state(legacy=False)
    return {
        "python": [version, list(numbers), gauss],
        "numpy": {**legacy, "state": {"key": legacy["state"]["key"].tolist(), "pos": int(legacy["state"]["pos"])}},
        "torch": _text(torch.get_rng_state()),
        "cuda": [_text(one) for one in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else [],
    }


def restore(found: Any) -> None:
    """Go on from there. Raises StateError for what is no such state; of other GPUs than these, the states are left alone."""
    try:
        version, numbers, gauss = found["python"]
        random.setstate((version, tuple(numbers), gauss))
        key = np.array(found["numpy"]["state"]["key"], dtype=np.uint32)
        np.random.set_state({**found["numpy"], "state": {"key": key, "pos": found["numpy"]["state"]["pos"]}})
        torch.set_rng_state(_tensor(found["torch"]))
        if found["cuda"] and len(found["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all([_tensor(one) for one in found["cuda"]])
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise StateError(f"the generators' states can't be restored: {error}") from None


def _text(tensor: torch.Tensor) -> str:
    return tensor.numpy().tobytes().hex()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
