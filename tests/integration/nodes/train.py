"""A small training script, as a user would write it; its arguments say how it ends.

train.py until-dead, until-left    until a member is, then consensus
train.py loader METHOD    batches come from two worker processes
train.py unclosed    ends without leaving the swarm
"""

import json
import os
import socket
import stat
import sys
from itertools import count

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import p2p
from p2p.config import TEST


class Sockets(Dataset[int]):
    """Each sample: how many TCP sockets the process has that loads it."""

    def __getitem__(self, index: int) -> int:
        return sum(is_tcp(int(number)) for number in os.listdir("/proc/self/fd"))

    def __len__(self) -> int:
        return 8


def is_tcp(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
    except OSError:
        return False
    borrowed = socket.socket(fileno=descriptor)
    try:
        return borrowed.family in (socket.AF_INET, socket.AF_INET6)
    finally:
        borrowed.detach()


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def main(how: str, *rest: str) -> None:
    torch.manual_seed(os.getpid())
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    node = p2p.join(model, optimizer, listen="tcp://127.0.0.1:0", config=TEST)
    say(id=node.id, address=node.address)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()

    if how == "unclosed":
        step()
        return
    with node:
        if how == "loader":
            loader = DataLoader(
                Sockets(), batch_size=1, num_workers=2, sampler=node.sampler(Sockets()), multiprocessing_context=rest[0]
            )
            say(sockets=[step() or int(tcp) for tcp in loader], own=Sockets()[0])
            return
        longest = 0.0
        for number in count(1):
            step()
            longest = max(longest, node.last_step.wait)
            if number % 100 == 0:
                say(step=number, members=sorted(node.members.values()), wait=longest)
            if how.removeprefix("until-") in node.members.values() and number > 100:
                break
        say(done=node.consensus(timeout=30).done, wait=longest)


if __name__ == "__main__":
    main(*sys.argv[1:])
