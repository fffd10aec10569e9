"""Trains alone with checkpoints and everything random in the loop; resumed from its run directory, if there is something in it.

python saver.py RUN STEPS EVERY          # prints a hash of all state at the end
python saver.py RUN STEPS EVERY KILLS    # before that, killed so many times while a checkpoint is being written
"""

import hashlib
import logging
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # an optimizer's first step would import it in every child
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import p2p

SAMPLES, BATCH, TOTAL = 90, 8, 1000


def main(run: Path, steps: int, every: int) -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    data = TensorDataset(torch.randn(SAMPLES, 6), torch.arange(SAMPLES) % 3)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=TOTAL)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=5)
    resume = run if any(run.glob("checkpoints/node-0/step-*")) else None
    os.environ["STARLINGS_RUN_DIR"] = str(run)
    with p2p.join(model, optimizer, scheduler=scheduler, scaler=scaler, resume=resume) as node:
        node.checkpoint(every)
        loader = DataLoader(data, batch_size=BATCH, sampler=node.sampler(data, chunk=7))
        done = node.step_count
        while done < steps:
            for x, y in loader:
                optimizer.zero_grad()
                noise = random.random() + float(np.random.rand()) * 0.1
                scaler.scale(nn.functional.cross_entropy(model(x + noise), y)).backward()
                scaler.step(optimizer)
                scaler.update()
                scheduler.step()
                done += 1
                if done >= steps:
                    break
    states = [*model.state_dict().values(), *(v for s in optimizer.state.values() for v in s.values())]
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in states))
    digest.update(repr((optimizer.param_groups[0]["lr"], scaler.get_scale(), torch.rand(1).item(), random.random())).encode())
    print(digest.hexdigest())


def kill(run: Path, kills: int) -> int:
    """Start it again and again, each time killed in the middle of a write; the newest step there is at the end."""
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            main(run, TOTAL, 1)
            os._exit(1)
        deadline = time.monotonic() + 30
        seen = set(run.glob("checkpoints/node-0/.tmp-*"))
        wanted = len(seen) + random.randint(1, 4)
        while len(seen) < wanted:
            assert time.monotonic() < deadline, "no checkpoint is being written"
            seen |= set(run.glob("checkpoints/node-0/.tmp-*"))
        time.sleep(random.random() * 0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return max(int(path.name[5:]) for path in run.glob("checkpoints/node-0/step-*"))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    run, steps, every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if len(sys.argv) > 4:
        reached = kill(run, int(sys.argv[4]))
        print(reached)
        steps += reached
    main(run, steps, every)
