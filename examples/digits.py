"""Handwritten digits, learned by nodes of which none sees them all.

    starlings launch -n 4 examples/digits.py                     # four nodes, each with its own 2 or 3 of the ten digits
    starlings launch -n 4 examples/digits.py --optimizer adam
    starlings launch -n 1 examples/digits.py --share 0/4         # what one of them could learn alone: about a third
    starlings launch -n 4 --algorithm gossip --topology ring examples/digits.py
    python examples/digits.py                                    # a swarm of one; it logs how others may join

The images are scikit-learn's (1797 of 8 x 8 pixels, in the package). Training images are sorted by label and dealt out
in that order, so a node must learn from the others; accuracy is that on 360 images which nobody trains on.
"""

from __future__ import annotations

import argparse
import logging

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import p2p

HELD_OUT = 360
LEARNING_RATE = {"sgd": 0.05, "adam": 0.003}


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    train, test = digits()
    train = share_of(train, *args.share)
    model = network()
    optimizer = optimizer_of(model, args.optimizer)

    with p2p.join(model, optimizer) as node:
        labels = train.tensors[1].tolist()
        loader = DataLoader(train, batch_size=32, sampler=node.sampler(train, split=args.split, labels=labels))
        while node.progress < args.steps:
            for images, targets in loader:
                decay(optimizer, LEARNING_RATE[args.optimizer], node.progress / args.steps)
                optimizer.zero_grad()
                loss = F.cross_entropy(model(images), targets)
                loss.backward()
                optimizer.step()
                if node.last_step.step % 50 == 0:
                    node.log(loss=loss.item(), accuracy=accuracy(model, test))
                if node.progress >= args.steps:
                    break
        node.log(loss=loss.item(), accuracy=accuracy(model, test))  # this node's own model
        node.consensus()
        node.log(accuracy=accuracy(model, test))  # the average


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn handwritten digits in a swarm.")
    parser.add_argument("--optimizer", choices=LEARNING_RATE, default="sgd")
    parser.add_argument("--steps", type=int, default=1500, help="of the swarm (default: 1500)")
    parser.add_argument(
        "--split", choices=("sorted", "shuffled", "rotated"), default="sorted", help="how the images are dealt out"
    )
    parser.add_argument("--share", type=fraction, default=(0, 1), help="I/N: use only this part of the sorted images")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def fraction(text: str) -> tuple[int, int]:
    """The part that "1/4" names: the second of four."""
    index, _, parts = text.partition("/")
    if not (index.isdigit() and parts.isdigit() and int(index) < int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r}: give I/N with 0 <= I < N, as 0/4")
    return int(index), int(parts)


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Training and held-out images, the same on every node; images (N, 1, 8, 8) in [0, 1]."""
    bunch = load_digits()
    images = torch.tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(bunch.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def share_of(data: TensorDataset, index: int, parts: int) -> TensorDataset:
    """One of `parts` equal parts of the images in the order of their labels."""
    part = data.tensors[1].argsort(stable=True).tensor_split(parts)[index]
    return TensorDataset(*data[part])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def optimizer_of(model: nn.Module, name: str) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(model.parameters(), lr=LEARNING_RATE[name])
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE[name], momentum=0.9)


def decay(optimizer: torch.optim.Optimizer, start: float, progress: float) -> None:
    """Linear, by the progress of the swarm: a node that joins late is where the others are."""
    for group in optimizer.param_groups:
        group["lr"] = start * max(0.0, 1 - progress)


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    images, labels = data.tensors
    with torch.no_grad():
        correct: Tensor = model(images).argmax(1) == labels
    return correct.float().mean().item()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()
