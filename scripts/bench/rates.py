"""Large learning rates, and momentum under asynchrony: two tables on shuffled digits.

    python scripts/bench/rates.py

First: sixteen nodes of batch 64, plain SGD, at growing rates: one model on the mean gradient, against D-PSGD on a ring and
with random pairs. Second: eight nodes, `async`, where a message takes longer and longer, at growing momentum.
"""

from __future__ import annotations

import argparse
import statistics

import torch

from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Digits

RATES = (0.5, 1.0, 2.0, 3.0)
MOMENTA = (0.0, 0.3, 0.6, 0.9)


def one_model(rate: float, seed: int, steps: int) -> float:
    """Accuracy of one model that is trained on the mean of sixteen gradients."""
    work = digits(16, rate, seed)
    model = work.model(0)
    optimizer = work.optimizer(model)
    for _ in range(steps):
        gradients = []
        for node in range(16):
            work.gradient(node, model)
            gradients.append([p.grad for p in model.parameters() if p.grad is not None])
        for p, parts in zip(model.parameters(), zip(*gradients, strict=True), strict=True):
            p.grad = torch.stack(parts).mean(0)
        optimizer.step()
    return work.score(model)


def decentralized(topology: str, rate: float, seed: int, steps: int) -> float:
    """Accuracy of the average of sixteen models under D-PSGD."""
    swarm = SimulatedSwarm(16, seed=seed, topology=topology, algorithm="gossip", workload=digits(16, rate, seed))
    return average(swarm.run(steps=steps))


def digits(nodes: int, rate: float, seed: int, momentum: float = 0.0, batch: int = 64) -> Digits:
    return Digits(nodes, "shuffled", seed, learning_rate=rate, momentum=momentum, batch=batch)


def average(swarm: SimulatedSwarm) -> float:
    """Accuracy of the mean model; 0.1 where it is no longer finite."""
    model = swarm.setting.workload.model(0)
    torch.nn.utils.vector_to_parameters(swarm.vectors().mean(0), model.parameters())
    return swarm.setting.workload.score(model)


def stale(momentum: float, latency: float, seed: int, steps: int) -> float:
    """Accuracy of the average under `async` where a message takes so many steps."""
    swarm = SimulatedSwarm(
        8,
        seed=seed,
        workload=digits(8, 0.2, seed, momentum, 32),
        compute=Paced(mean=1.0, variation=0.1, seed=seed),
        underlay=Underlay(seed, access=Line(latency=latency / 2)),
    )
    return average(swarm.run(steps=steps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    torch.set_num_threads(1)
    seeds, steps = range(given.seeds), given.steps
    print(f"{'rate':>6} {'one model':>10} {'ring':>8} {'pairs':>8}   accuracy after {steps} steps")
    for rate in RATES:
        one = statistics.median(one_model(rate, seed, steps) for seed in seeds)
        ring, pairs = (
            statistics.median(decentralized(t, rate, seed, steps) for seed in seeds) for t in ("ring", "random-matching")
        )
        print(f"{rate:6g} {one:10.3f} {ring:8.3f} {pairs:8.3f}", flush=True)
    print(f"\n{'momentum':>8} {'at once':>8} {'1 step':>8} {'4 steps':>8}   a message takes; accuracy after {steps // 2} steps")
    for momentum in MOMENTA:
        found = [statistics.median(stale(momentum, way, seed, steps // 2) for seed in seeds) for way in (0.01, 1.0, 4.0)]
        print(f"{momentum:8g} " + " ".join(f"{score:8.3f}" for score in found), flush=True)


if __name__ == "__main__":
    main()
