"""One node that works through a data set of numbers and writes down which it has processed, and when.

Its one argument is a JSON object, see `Job` in ../work_swarm.py; each line that it writes is one too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

import p2p
from p2p.config import TEST


class Numbers(torch.utils.data.Dataset[int]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


def main(job: dict[str, Any]) -> None:
    if job["cpu"] is not None:
        os.sched_setaffinity(0, {job["cpu"]})
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with open(job["ledger"], "a", buffering=1) as ledger:

        def write(**line: Any) -> None:
            ledger.write(json.dumps({"t": time.monotonic(), **line}) + "\n")

        with p2p.join(
            model,
            optimizer,
            peers=job["peers"],
            listen="tcp://127.0.0.1:0",
            wait_for=job["wait_for"],
            join_timeout=60,
            config=TEST,
        ) as node:
            write(address=node.address, id=node.id)
            train(job, node, model, optimizer, write)
            write(done=True, duplicates=node._feed.duplicates, plans=[leases.plans for leases in node._agent.work.all])


def train(job: dict[str, Any], node: p2p.Node, model: nn.Module, optimizer: torch.optim.Optimizer, write: Any) -> None:
    data = Numbers(job["length"])
    if job["global"]:
        batches = node.batches(data, job["global"], micro=job["micro"], chunk=job["chunk"])
        sampler = batches.sampler
        loader = DataLoader(data, batch_sampler=batches, num_workers=job["workers"])
    else:
        sampler = node.sampler(data, chunk=job["chunk"])
        loader = DataLoader(data, batch_size=job["batch"], sampler=sampler, num_workers=job["workers"])
    checkpoint = Path(job["checkpoint"] or "/nonexistent")
    if checkpoint.exists():
        sampler.load_state_dict(json.loads(checkpoint.read_text()))
    steps = 0
    for epoch in node.epochs(job["epochs"]):
        seen: list[int] = []
        for numbers in loader:
            compute(job, len(numbers))
            seen += numbers.tolist()
            loss = model(numbers[:, None].float() / job["length"]).square().mean()
            if job["global"]:
                (loss * batches.now.weight).backward()
                if not batches.now.last:
                    continue
            else:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            write(epoch=epoch, step=steps, seen=seen)
            seen = []
            if steps == job["stop"]:
                checkpoint.write_text(json.dumps(sampler.state_dict()))
                return
        write(ended=epoch)


def compute(job: dict[str, Any], samples: int) -> None:
    """Wait, or work for as long as it takes."""
    if not job["burn"]:
        time.sleep(samples * job["pace"])
        return
    x = torch.full((96, 96), 0.01)
    for _ in range(samples * job["burn"]):
        x = torch.tanh(x @ x)


main(json.loads(sys.argv[1]))
