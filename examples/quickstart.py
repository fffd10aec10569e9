"""The shortest training loop that learns in a swarm.

    starlings launch -n 2 examples/quickstart.py

Each node fits the same line through points of its own; after a few hundred steps all hold the same slope and offset.
"""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import p2p

x = torch.linspace(-1, 1, 1000).unsqueeze(1)
data = TensorDataset(x, 3 * x - 1 + 0.1 * torch.randn_like(x))
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

with p2p.join(model, optimizer) as node:
    loader = DataLoader(data, batch_size=32, sampler=node.sampler(data))
    for _ in range(20):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
        node.log(loss=loss.item())
    node.consensus()

print(f"y = {model.weight.item():.3f} x + {model.bias.item():.3f}")
