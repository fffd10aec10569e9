"""Which algorithms reach the optimum when every node's data are different: unlike quadratics on eight simulated nodes.

    python scripts/bench/quadratics.py                 # the whole table, about three minutes
    python scripts/bench/quadratics.py --methods d2    # rows with this word

Node i has f_i(x) = (x - b_i)^T A_i (x - b_i) / 2 in 10 dimensions (float64), exact gradients; A_i = Q_i diag(0.5 .. 1.5) Q_i^T
with random orthogonal Q_i, b_i and the start normal, seed 0 (`p2p.sim.workloads.Quadratics`). Printed is the root mean
square distance of the nodes' models to the minimum of the sum, for those that stall also at a fourth of the rate.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import torch

import optim
import topology
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Quadratics

NODES = 8


@dataclass(frozen=True)
class Row:
    """One line of the table. `momentum` is the optimizer's own."""

    name: str
    algorithm: str
    topology: str = "ring"
    lr: float = 0.1
    steps: int = 150
    momentum: float = 0.0
    exact: bool = False  # no bias is expected


ROWS = (
    Row("D-PSGD", "gossip"),
    Row("D-PSGD, overlapped", "gossip:overlap=yes"),
    Row("D-PSGD, one-peer exponential", "gossip", "one-peer-exponential"),
    Row("DSGDm, local momentum", "gossip:momentum=local", lr=0.01, momentum=0.9),
    Row("DSGDm, shared momentum", "gossip", lr=0.01, momentum=0.9),
    Row("quasi-global momentum", "gossip:momentum=quasi-global"),
    Row("DecentLaM", "decentlam", lr=0.01),
    Row("local SGD, every 8", "local", "complete"),
    Row("SlowMo, every 8", "slowmo", "complete"),
    Row("SGP", "push-sum", "one-peer-exponential"),
    Row("gradient tracking", "gradient-tracking", steps=330, exact=True),
    Row("gradient tracking, one-peer exponential", "gradient-tracking", "one-peer-exponential", 0.2, 200, exact=True),
    Row("momentum tracking", "momentum-tracking", lr=0.01, steps=560, exact=True),
    Row("D2", "d2"),
    Row("D2, one-peer exponential", "d2", "one-peer-exponential"),
    Row("D2, lazy weights", "d2", "ring:weights=lazy", 0.2, 250, exact=True),
)


def distance(row: Row, lr: float, steps: int) -> float:
    """Root mean square distance of all nodes' models to the optimum after so many steps."""
    work = Quadratics(NODES, learning_rate=lr, momentum=row.momentum)
    swarm = SimulatedSwarm(NODES, topology=row.topology, algorithm=row.algorithm, workload=work).run(steps=steps)
    return float((swarm.vectors() - work.minimum).square().mean().sqrt())


def line(row: Row) -> str:
    """The measured line, or why there is none."""
    algorithm = optim.make(row.algorithm)
    try:
        optim.check(algorithm, topology.make(row.topology), NODES)
    except optim.Incompatible as refusal:
        return f"{row.name:42} refused: {refusal}"
    began = time.perf_counter()
    far = f"{distance(row, row.lr, row.steps):.1e}"
    near = "" if row.exact else f"{distance(row, row.lr / 4, 2 * row.steps):.1e}"
    seconds = time.perf_counter() - began
    return f"{row.name:42} {row.topology:22} {row.lr:6g} {far:>9} {near:>9} {algorithm.payloads:8} {seconds:7.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="", help="only rows with this in their name")
    wanted = parser.parse_args().methods.lower()
    torch.set_num_threads(1)
    print(f"{'method':42} {'topology':22} {'lr':>6} {'at lr':>9} {'at lr/4':>9} {'payloads':>8}")
    for row in ROWS:
        if wanted in row.name.lower():
            print(line(row), flush=True)


if __name__ == "__main__":
    main()
