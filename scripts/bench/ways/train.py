"""A trainer: alone, in a swarm of ours, or under torch's DistributedDataParallel with gloo; each on random data of its own.

python train.py alone|ddp|ALGORITHM large|tiny STEPS RANK SIZE FOLDER

Large: 25 million parameters in five layers. Tiny: three layers of 64. Steps are counted in wall time, in CPU time of the
trainer's thread, and in CPU time of all other threads of the process: the agent and its I/O.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from serving import PATIENCE, fetch, post, serve
from torch import Tensor, nn

import p2p

SIZES = {"large": (2236, 5, 24), "tiny": (64, 3, 2048)}
"""Width, layers, batch."""


class Trainer:
    """One loop over the same batch: its loss must fall."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
        self.model, self.optimizer, self.x, self.y = model, optimizer, x, y
        self.losses: list[float] = []

    def step(self) -> float:
        """Returns CPU seconds of this thread in the optimizer's step, hooks included."""
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(self.x), self.y)
        loss.backward()
        began = time.thread_time()
        self.optimizer.step()
        update = time.thread_time() - began
        self.losses.append(loss.item())
        return update

    def steps(self, count: int) -> dict[str, object]:
        """Of each step: seconds, and CPU seconds of the optimizer's; of all: CPU seconds per step, here and elsewhere."""
        seconds, updates = [], []
        thread, process = time.thread_time(), time.process_time()
        for _ in range(count):
            began = time.perf_counter()
            updates.append(self.step())
            seconds.append(time.perf_counter() - began)
        thread, process = (now - then for now, then in ((time.thread_time(), thread), (time.process_time(), process)))
        return {"seconds": seconds, "updates": updates, "trainer": [thread / count], "others": [(process - thread) / count]}


def usage() -> dict[str, int]:
    """Bytes resident now and at most, threads, descriptors."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    status = {words[0]: words[1] for words in lines if len(words) > 1}
    return {
        "resident": 1024 * int(status["VmRSS:"]),
        "peak": 1024 * int(status["VmHWM:"]),
        "threads": int(status["Threads:"]),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


def network(size: str, rank: int) -> tuple[nn.Module, Tensor, Tensor]:
    """The same model on each rank, its own data."""
    width, layers, batch = SIZES[size]
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(layers) for layer in (nn.Linear(width, width, bias=False), nn.ReLU())))
    generator = torch.Generator().manual_seed(rank)
    x, y = (torch.randn(batch, width, generator=generator) for _ in range(2))
    return model, x, y


@contextmanager
def taking_part(
    way: str, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, size: int, folder: Path
) -> Iterator[nn.Module]:
    """The model to call, in whatever binds the processes."""
    if way == "alone":
        yield model
    elif way == "ddp":
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
        yield nn.parallel.DistributedDataParallel(model)
        dist.destroy_process_group()
    else:
        peers = fetch(folder, "address") if rank else ()
        local = "tcp://127.0.0.1:0"
        with p2p.join(model, optimizer, algorithm=way, peers=peers, listen=local, wait_for=size, join_timeout=PATIENCE) as node:
            if not rank:
                post(folder, "address", node.address)
            yield model


def main() -> None:
    way, size, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rank, processes, folder = int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6])
    torch.set_num_threads(1)
    model, x, y = network(size, rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with taking_part(way, model, optimizer, rank, processes, folder) as called:
        trainer = Trainer(called, optimizer, x, y)
        serve({"steps": lambda: trainer.steps(count), "losses": lambda: trainer.losses, "usage": usage})


main()
