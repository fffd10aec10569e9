"""A trainer of digits that may be killed at any moment: a node of ours, or a worker under `torchrun`.

    python member.py ddp|ALGORITHM WAIT FOLDER [PEERS]

Each step waits so many seconds, as if it computed, and then adds a line to `steps-<pid>`: the time, and now and then the
accuracy. A node leaves its address in `address-<pid>`. Worker 0 writes a checkpoint every ten steps, from which all begin.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from learner import Learner
from serving import post
from torch import nn

EVERY = 10
"""Steps between two looks at the accuracy, and two checkpoints."""


class Member:
    """The loop, and what it writes."""

    def __init__(self, wait: float, folder: Path) -> None:
        self.wait, self.folder = wait, folder
        self.learner = Learner(folder / "case.npz", 0, seed=os.getpid())
        self.steps = 0

    def train(self, called: nn.Module, then: Callable[[], None] = lambda: None) -> None:
        """For ever; `then` follows every tenth step."""
        with (self.folder / f"steps-{os.getpid()}").open("a", buffering=1) as lines:
            while True:
                time.sleep(self.wait)
                self.learner.step(called)
                self.steps += 1
                due = self.steps % EVERY == 0
                print(time.monotonic(), self._accuracy() if due else "", file=lines)
                if due:
                    then()

    def _accuracy(self) -> float:
        with torch.no_grad():
            right = self.learner.model(self.learner.images).argmax(1) == self.learner.labels
        return float(right.float().mean())


def ddp(member: Member) -> None:
    """Under torchrun, which starts all again when one has died."""
    dist.init_process_group("gloo")
    learner, path = member.learner, member.folder / "checkpoint.npz"
    if path.exists():
        with np.load(path) as saved:
            restore(learner, saved["model"], saved["momentum"])

    def save() -> None:
        if dist.get_rank() == 0:
            momentum = torch.cat([learner.optimizer.state[p]["momentum_buffer"].flatten() for p in learner.model.parameters()])
            np.savez(path.with_suffix(".part.npz"), model=learner.vector().numpy(), momentum=momentum.numpy())
            path.with_suffix(".part.npz").replace(path)

    member.train(nn.parallel.DistributedDataParallel(learner.model), save)


def restore(learner: Learner, model: np.ndarray, momentum: np.ndarray) -> None:
    """What the checkpoint holds, into model and optimizer."""
    nn.utils.vector_to_parameters(torch.from_numpy(model), learner.model.parameters())
    parameters = list(learner.model.parameters())
    for p, buffer in zip(parameters, torch.from_numpy(momentum).split([p.numel() for p in parameters]), strict=True):
        learner.optimizer.state[p]["momentum_buffer"] = buffer.reshape(p.shape).clone()


def swarm(member: Member, algorithm: str, peers: str) -> None:
    """With no peers it founds the swarm."""
    import p2p

    learner = member.learner
    local = "tcp://127.0.0.1:0"
    with p2p.join(
        learner.model, learner.optimizer, algorithm=algorithm, peers=peers.split(), listen=local, join_timeout=60
    ) as node:
        post(member.folder, f"address-{os.getpid()}", node.address)
        member.train(learner.model)


def main() -> None:
    way, wait, folder = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    work = ddp if way == "ddp" else partial(swarm, algorithm=way, peers=" ".join(sys.argv[4:]))
    work(Member(wait, folder))


main()
