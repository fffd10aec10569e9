"""How far a joiner is from the swarm's mean, in a swarm that takes many steps a second and moves all the while.

    python scripts/bench/catch_up.py --members 4 --joins 5 --rate 200

Members and joiners are processes of this machine with a tiny model. Each step adds the same drift to every element, and noise
of a node's own; all models are compared at the same moments. Prints the joiner's distance to the members' mean over the
members' own, by the time since `join` returned, and when it was first below 2.
"""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import time
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import p2p

SIZE, LOOKED_AT = 1000, 16
RATE = 0.01
WINDOW, STRIDE = 0.1, 0.01
"""Seconds over which distances are averaged, and between two looks."""
AFTER = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)

Floats = npt.NDArray[np.float64]


def main() -> None:
    args = arguments()
    context = multiprocessing.get_context("spawn")
    stop, secret = context.Event(), secrets.token_bytes(32)
    nodes: list[tuple[SpawnProcess, Connection]] = []

    def start(address: str, seed: int, end: Event) -> str:
        here, there = context.Pipe()
        process = context.Process(target=train, args=(there, end, secret, address, seed, args.rate))
        process.start()
        nodes.append((process, here))
        return str(here.recv())

    address = start("", 0, stop)
    for seed in range(1, args.members):
        start(address, seed, stop)
    time.sleep(3)
    joined = []
    for join in range(args.joins):
        gone = context.Event()
        start(address, args.members + join, gone)
        time.sleep(AFTER[-1] + 1)
        gone.set()
        joined.append(collect(*nodes.pop()))
    stop.set()
    members = [collect(*node) for node in nodes]
    show(members, joined)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how soon a joiner is as near to the mean as the others.")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--joins", type=int, default=5)
    parser.add_argument("--rate", type=float, default=200.0, help="steps a second")
    return parser.parse_args()


def train(pipe: Connection, stop: Event, secret: bytes, peer: str, seed: int, rate: float) -> None:
    """Step until told to stop, and say where the model was when."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    x = nn.Parameter(torch.zeros(SIZE))
    optimizer = torch.optim.SGD([x], lr=RATE)
    model = nn.ParameterList([x])
    path: list[tuple[float, Floats]] = []
    with p2p.join(model, optimizer, secret=secret, peers=peer, listen="tcp://127.0.0.1:0", join_timeout=60) as node:
        began = time.time()
        pipe.send(node.address)
        due = time.perf_counter()
        while not stop.is_set():
            x.grad = -1 + torch.randn(SIZE)
            optimizer.step()
            path.append((time.time(), x.detach()[:LOOKED_AT].double().numpy().copy()))
            due += 1 / rate
            time.sleep(max(0.0, due - time.perf_counter()))
    pipe.send((began, np.array([at for at, _ in path]), np.stack([value for _, value in path])))


def collect(process: SpawnProcess, pipe: Connection) -> tuple[float, Floats, Floats]:
    """When it was in, and then the times and values of its steps."""
    found: tuple[float, Floats, Floats] = pipe.recv()
    process.join()
    return found


def show(members: list[tuple[float, Floats, Floats]], joined: list[tuple[float, Floats, Floats]]) -> None:
    first = []
    for began, times, values in joined:
        moments = np.arange(began, times[-1], STRIDE)
        mean, apart = together(members, moments)
        own = root_mean_square(at(moments, times, values) - mean)
        ratio = smoothed(own) / smoothed(apart)
        first.append(float(moments[np.argmax(ratio < 2)] - began) if (ratio < 2).any() else float("inf"))
        rate = len(times) / (times[-1] - times[0])
        seen = ", ".join(f"{ratio[min(int(t / STRIDE), len(ratio) - 1)]:.2f} after {t:g} s" for t in AFTER)
        print(f"{rate:.0f} steps a second; distance over the members': {seen}; below 2 after {first[-1]:.2f} s")
    print(f"below twice the members' distance after {max(first):.2f} s at the latest, of {len(first)} joins")


def together(members: list[tuple[float, Floats, Floats]], moments: Floats) -> tuple[Floats, Floats]:
    """The members' mean at these moments, and their root mean square distance to it."""
    paths = np.stack([at(moments, times, values) for _, times, values in members])
    mean = paths.mean(axis=0)
    return mean, np.sqrt(np.square(paths - mean).mean(axis=(0, 2)))


def at(moments: Floats, times: Floats, values: Floats) -> Floats:
    """A model at these moments: as it was after the last step before each."""
    return values[np.clip(np.searchsorted(times, moments, side="right") - 1, 0, None)]


def root_mean_square(difference: Floats) -> Floats:
    return np.asarray(np.sqrt(np.square(difference).mean(axis=1)))


def smoothed(distance: Floats) -> Floats:
    """The mean of each moment and what follows within the window."""
    width = round(WINDOW / STRIDE)
    padded = np.concatenate([distance, np.full(width - 1, distance[-1])])
    return np.convolve(padded, np.full(width, 1 / width), "valid")


if __name__ == "__main__":
    main()
