"""A node that counts what a step costs; the trainer waits, and has no gradients, so that all else is the agent's.

python scale.py ALGORITHM WAIT STEPS RANK SIZE FOLDER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from counting import Counting
from serving import PATIENCE, fetch, post, serve
from torch import nn

import p2p

ELEMENTS = 16384
"""Of float32: 64 KiB, one block."""


def main() -> None:
    algorithm, wait, steps = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    rank, size, folder = int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6])
    torch.set_num_threads(1)
    model = nn.ParameterList([torch.full((ELEMENTS,), float(rank))])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peers = fetch(folder, "address") if rank else ()
    local = "tcp://127.0.0.1:0"
    with p2p.join(
        model, optimizer, algorithm=algorithm, peers=peers, listen=local, wait_for=size, join_timeout=PATIENCE
    ) as node:
        if not rank:
            post(folder, "address", node.address)
        with torch.no_grad():
            model[0].fill_(float(rank))  # a joiner has taken the founder's
        counting = Counting(node._agent.transport)

        def train() -> dict[str, float]:
            """So many steps; what each cost."""
            counting.reset()
            thread, process = time.thread_time(), time.process_time()
            for _ in range(steps):
                time.sleep(wait)
                optimizer.step()
            agent = (time.process_time() - process) - (time.thread_time() - thread)
            return {"messages": counting.messages / steps, "bytes": counting.bytes / steps, "cpu": agent / steps}

        serve({"train": train, "memory": resident, "value": lambda: float(model[0].detach().mean())})


def resident() -> float:
    """Bytes."""
    return float(Path("/proc/self/statm").read_text().split()[1]) * 4096


main()
