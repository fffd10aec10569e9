"""How many steps live swaps need, by what becomes of momentum, without the network in the way: eight agents, sorted digits.

    python scripts/bench/swaps.py                      # about ten minutes
    python scripts/bench/swaps.py --methods Adam --seeds 1

A step takes 1 s, give or take 10 %, and five times as long on node 0 in the second column; a message takes 0.1 s, however
long it is. Printed for each seed is the second in which the average model was first seen at 0.95 (looked at every 5 s), and
when the mean of the nodes' own accuracies was; `-` is never in `--seconds`. The last rows cut the 19 KB model into 9 or 12
blocks, on lines that carry a third of them per step.
"""

from __future__ import annotations

import argparse
import logging
import time
from dataclasses import dataclass, replace

import torch

from p2p.config import LAN
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.swarm import Sample, SimulatedSwarm
from p2p.sim.workloads import Digits

NODES, GOAL = 8, 0.95


@dataclass(frozen=True)
class Row:
    """One line: `block` bytes to a block, `bandwidth` bytes a second to a node."""

    name: str
    algorithm: str = "async"
    optimizer: str = "sgd"
    momentum: float = 0.9
    block: int = 1 << 18
    bandwidth: float = float("inf")


ROWS = (
    Row("SGD, momentum tracked"),
    Row("SGD, momentum shared", "async:momentum=shared"),
    Row("SGD, quasi-global momentum", "async:momentum=quasi-global", momentum=0.0),
    Row("SGD, local momentum", "async:momentum=local"),
    Row("Adam, moments tracked", optimizer="adam"),
    Row("Adam, moments shared", "async:momentum=shared", "adam"),
    Row("SwarmAdam, moments tracked", optimizer="swarm-adam"),
    Row("SwarmAdam, moments shared", "async:momentum=shared", "swarm-adam"),
    Row("AccumAdam, moments tracked", optimizer="accum-adam"),
    Row("SGD, tracked, 9 blocks in rotation", block=2144, bandwidth=26e3),
    Row("SGD, tracked, 12 blocks in rotation", block=1608, bandwidth=26e3),
)


def simulated(row: Row, seed: int, slow: float, seconds: float) -> SimulatedSwarm:
    """The swarm of one row, after so many virtual seconds."""
    start = 2 * row.block if row.bandwidth < float("inf") else LAN.exchange.credit_start
    exchange = replace(LAN.exchange, block_bytes=row.block, message_bytes=row.block, credit_start=start)
    swarm = SimulatedSwarm(
        NODES,
        seed=seed,
        algorithm=row.algorithm,
        workload=Digits(NODES, seed=seed, optimizer_name=row.optimizer, momentum=row.momentum),  # type: ignore[arg-type]
        compute=Paced(mean=1.0, variation=0.06, slow={0: slow}, seed=seed),
        underlay=Underlay(seed, access=Line(latency=0.05, bandwidth=row.bandwidth)),
        config=replace(LAN, exchange=exchange),
        sample=5.0,
    )
    return swarm.run(seconds=seconds)


def reached(samples: list[Sample], column: str) -> str:
    """When one of the scores was first seen at the goal."""
    return next((f"{sample.time:.0f}" for sample in samples if getattr(sample, column) >= GOAL), "-")


def line(row: Row, seeds: int, seconds: float) -> str:
    began, cells = time.perf_counter(), []
    for slow in (1.0, 5.0):
        swarms = [simulated(row, seed, slow, seconds) for seed in range(seeds)]
        cells += ["/".join(reached(swarm.samples, column) for swarm in swarms) for column in ("average", "nodes")]
    return f"{row.name:38}" + "".join(f"{cell:>16}" for cell in cells) + f"{time.perf_counter() - began:6.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="", help="rows with this in their name; several between semicolons")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=230.0, help="virtual ones")
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("starlings").setLevel(logging.ERROR)
    print(f"{'method':38}" + "".join(f"{head:>16}" for head in ("average", "nodes", "5x: average", "5x: nodes")))
    for row in ROWS:
        if any(word.strip().lower() in row.name.lower() for word in given.methods.split(";")):
            print(line(row, given.seeds, given.seconds), flush=True)


if __name__ == "__main__":
    main()
