"""A node that learns eight clouds of points, of which it sees only some, in steps made of waiting; and says how it stands.

Every quarter of a second `state-<i>.json` tells its step, its accuracy and its view, and `model-<i>.npy` holds its parameters.
It ends with SIGTERM, or when a file named `stop` is there.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import p2p
from p2p.config import LAN, TEST

INDEX, RUN = int(os.environ["STARLINGS_INDEX"]), Path(os.environ["STARLINGS_RUN_DIR"])
CLASSES, WIDTH = 8, 16
EVERY = int(os.environ.get("STARLINGS_CHECKPOINT", "0"))
"""Steps between checkpoints; 0: there are none."""
SAY = 0.25
"""Seconds between two reports."""


def cloud(label: int, count: int, seed: int) -> Tensor:
    centre = torch.randn(WIDTH, generator=torch.Generator().manual_seed(label))
    return centre + 0.7 * torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(1000 * seed + label))


def accuracy(model: nn.Module) -> float:
    with torch.no_grad():
        right = [(model(cloud(label, 50, seed=99)).argmax(1) == label).float().mean() for label in range(CLASSES)]
    return float(torch.stack(right).mean())


def say(node: p2p.Node, model: nn.Module) -> None:
    state = {
        "pid": os.getpid(),
        "id": node.id,
        "address": node.address,
        "members": dict(node.members),
        "step": node.last_step.step,
        "accuracy": accuracy(model),
        "leaving": node.leaving,
        "dialled": len(node._agent.transport._dialled),
        "threads": threading.active_count(),
        "time": time.time(),
    }
    part = RUN / f".state-{INDEX}.part"
    part.write_text(json.dumps(state))
    part.replace(RUN / f"state-{INDEX}.json")
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
    with (RUN / f".model-{INDEX}.part").open("wb") as file:
        np.save(file, flat)
    (RUN / f".model-{INDEX}.part").replace(RUN / f"model-{INDEX}.npy")


def main(pause: float, fails_at: int, **settings: Any) -> None:
    torch.manual_seed(INDEX)
    model = nn.Linear(WIDTH, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    own = [label for label in range(CLASSES) if label % 4 == INDEX % 4]
    said = 0.0
    with p2p.join(model, optimizer, **settings) as node:
        if EVERY:
            node.checkpoint(EVERY)
        while not node.leaving and not (RUN / "stop").exists():
            time.sleep(pause)
            step = node.last_step.step if said else 0
            x = torch.cat([cloud(label, 16, step) for label in own])
            y = torch.tensor(own).repeat_interleave(16)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if time.monotonic() - said > SAY:
                say(node, model)
                said = time.monotonic()
            if step >= fails_at >= 0:
                raise RuntimeError("the user's own")


main(float(sys.argv[1]), int(sys.argv[2]), config=TEST if sys.argv[3] == "test" else LAN)
