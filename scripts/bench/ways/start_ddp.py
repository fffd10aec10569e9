"""One of many processes under `torchrun`: takes one step under DDP, and says when it was done.

python start_ddp.py FOLDER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from serving import post
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(32, 64)).square().mean().backward()
optimizer.step()
post(Path(sys.argv[1]), f"first-{dist.get_rank()}", f"{time.time()} {dist.get_world_size()}")
dist.destroy_process_group()
