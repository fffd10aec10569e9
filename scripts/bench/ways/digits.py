"""A trainer of digits whose steps mostly wait: in a swarm of ours, under DDP with gloo, or under decent-dp.

python digits.py ddp|decent-dp|ALGORITHM RANK SIZE FOLDER

The words `join`, `run`, `leave` are one run; the n-th one is of `case-<n>.npz`, which also says how long each step waits. A
step waits first, as if it computed, then takes its gradient and exchanges. All parameters after each step are kept in memory,
with the time, and are left in `track-<rank>.npz` at the end.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from board import Board
from learner import MOMENTUM, RATE, Learner
from serving import PATIENCE, fetch, post, serve
from torch import Tensor, nn

Step = Callable[[], object]


class Run:
    """One case of one rank."""

    def __init__(self, way: str, number: int, rank: int, size: int, folder: Path) -> None:
        self.way, self.number, self.rank, self.size, self.folder = way, number, rank, size, folder
        path = folder / f"case-{number}.npz"
        self.learner = Learner(path, rank)
        with np.load(path) as case:
            self._lengths = case["lengths"][rank]
        self._board = Board(folder, size, len(self.learner.vector()))
        self._times: list[float] = []
        self._models: list[Tensor] = []

    def train(self, step: Step) -> float:
        """Until the end is called; when it began."""
        began = time.monotonic()
        while not self._over():
            if time.monotonic() > began + PATIENCE:
                raise TimeoutError(f"nobody called the end within {PATIENCE:g} s")
            time.sleep(self._lengths[len(self._times) % len(self._lengths)])
            step()
            self._note()
        return began

    def _over(self) -> bool:
        """Those who wait for each other stop after the same step, others at once."""
        return len(self._times) >= self._board.last if self.way in BOUND else self._board.called

    def _note(self) -> None:
        self._models.append(self.learner.vector())
        self._times.append(time.monotonic())
        self._board.note(self.rank, len(self._times), self._models[-1].numpy())

    def save(self) -> None:
        np.savez(self.folder / f"track-{self.rank}.npz", times=self._times, models=torch.stack(self._models).numpy())


# --- what binds the ranks --------------------------------------------------------------------------------------------


@contextmanager
def ddp(run: Run) -> Iterator[Step]:
    with group(run):
        yield partial(run.learner.step, nn.parallel.DistributedDataParallel(run.learner.model))


@contextmanager
def decent(run: Run) -> Iterator[Step]:
    """Its optimizers step inside the backward pass; at the end, what is under way is waited for."""
    from decent_dp.ddp import DecentralizedDataParallel

    os.environ["LOCAL_WORLD_SIZE"] = "1"
    with group(run):
        wrapped = DecentralizedDataParallel(
            run.learner.model,
            lambda named: torch.optim.SGD([p for _, p in named], lr=RATE, momentum=MOMENTUM),
            topology="one-peer-exp",
        )
        yield lambda: run.learner.loss(wrapped).backward()
        for operation in wrapped._comm_ops:
            if operation is not None:
                operation.wait()


@contextmanager
def group(run: Run) -> Iterator[None]:
    store = f"file://{run.folder}/store-{run.number}"
    dist.init_process_group("gloo", init_method=store, rank=run.rank, world_size=run.size)
    yield
    dist.destroy_process_group()


@contextmanager
def swarm(run: Run) -> Iterator[Step]:
    """Rank 0 founds it; a run begins when all know of all."""
    import p2p

    model, optimizer = run.learner.model, run.learner.optimizer
    founder = f"address-{run.number}"
    peers = fetch(run.folder, founder) if run.rank else ()
    local = "tcp://127.0.0.1:0"
    with p2p.join(model, optimizer, algorithm=run.way, peers=peers, listen=local, join_timeout=PATIENCE) as node:
        if not run.rank:
            post(run.folder, founder, node.address)
        deadline = time.monotonic() + PATIENCE
        while list(node.members.values()).count("alive") < run.size:
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {dict(node.members)} came")
            time.sleep(0.02)
        yield partial(run.learner.step, model)


BOUND = {"ddp": ddp, "decent-dp": decent}
"""Ways in which nobody goes on without the others."""


class Rank:
    """Answers the words."""

    def __init__(self, make: Callable[[int], Run]) -> None:
        self._make, self._numbers = make, count()
        self._end = ExitStack()

    def join(self) -> None:
        self._run = self._make(next(self._numbers))
        self._step = self._end.enter_context(BOUND.get(self._run.way, swarm)(self._run))

    def run(self) -> float:
        return self._run.train(self._step)

    def leave(self) -> None:
        self._end.close()
        self._run.save()


def main() -> None:
    way, rank, size, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    me = Rank(lambda number: Run(way, number, rank, size, folder))
    serve({"join": me.join, "run": me.run, "leave": me.leave})


main()
