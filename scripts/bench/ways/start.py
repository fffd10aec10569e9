"""One of many nodes under `starlings launch`: says when its first step was done, and goes on until all have taken theirs.

python start.py FOLDER NODES
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from serving import post
from torch import nn

import p2p

folder, nodes = Path(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
model = nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(32, 64)


def step() -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


with p2p.join(model, optimizer) as node:
    step()
    post(folder, f"first-{os.environ['STARLINGS_INDEX']}", f"{time.time()} {len(node.members)}")
    while len(list(folder.glob("first-?")) + list(folder.glob("first-??"))) < nodes:
        time.sleep(0.1)
        step()
