"""One node that trains alone, slowly, until it is told to stop: its arguments are where to listen and the secret's file."""

import sys
import time
from pathlib import Path

import torch
from torch import nn

import p2p

listen, secret, stop = sys.argv[1:]
model = nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
with p2p.join(model, optimizer, listen=listen, secret=secret) as node:
    while not Path(stop).exists():
        model(torch.ones(1, 512)).mean().backward()
        optimizer.step()
        time.sleep(0.1)
