"""Trains alone with checkpoints and everything random in the loop; resumed from its run directory, if there is something in it.

python saver.py RUN STEPS EVERY          # prints a hash of all state at the end
python saver.py RUN STEPS EVERY KILLS    # before that, killed so many times while a checkpoint is being written
"""

import hashlib
import logging
import math
import os
import random
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # an optimizer's first step would import it in every child
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import p2p

SAMPLES, BATCH = 90, 8


def main(run: Path, steps: float, every: int) -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    data = TensorDataset(torch.randn(SAMPLES, 6), torch.arange(SAMPLES) % 3)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.001, max_lr=0.02, step_size_up=50)
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
        child = start(run)
        try:
            await_write(run, child)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return max(int(path.name[5:]) for path in run.glob("checkpoints/node-0/step-*"))


def start(run: Path) -> int:
    """A process that trains, with a checkpoint at every step, until it is killed."""
    child = os.fork()
    if child:
        return child
    try:
        main(run, math.inf, 1)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def await_write(run: Path, child: int) -> None:
    """Return at some moment of one of the child's next few writes."""
    deadline = time.monotonic() + 30
    seen = set(run.glob("checkpoints/node-0/.tmp-*"))
    wanted = len(seen) + random.randint(1, 4)
    while len(seen) < wanted:
        assert os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None, "it ended by itself: see above"
        assert time.monotonic() < deadline, "no checkpoint is being written"
        time.sleep(0.0005)
        seen |= set(run.glob("checkpoints/node-0/.tmp-*"))
    time.sleep(random.random() * 0.02)


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
