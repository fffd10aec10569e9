"""What codecs cost in learning, and save in bytes: digits dealt to eight simulated nodes under `async`.

    python scripts/bench/learning_codecs.py                                       # shuffled and sorted data, three seeds
    python scripts/bench/learning_codecs.py --split shuffled --seeds 10 --codecs int8
    python scripts/bench/learning_codecs.py --split sorted --codecs "top-k:10;top-k:30;top-k:100;top-k:300"

A step computes for 1 s (10 % variation), a message takes 0.1 s, and the whole model is one block, as large matrices are.
Accuracy is that of the average model and the mean of the nodes' own, each over the last fifth of the run. Every codec runs on
the same seeds as the first row, raw float32, and is shown as the difference from it: mean over seeds, and the worst one. Bytes
are those sent, over those of the first row, the int8 that founds replicas included.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import torch

from p2p.config import LAN
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Digits

NODES = 8
BLOCK = 1 << 15
CODECS = "int8;int4;sign;top-k:30;top-k:100;random-k:30;random-k:100;low-rank:1"


@dataclass(frozen=True)
class Outcome:
    average: float
    nodes: float
    sent: float  # bytes per node and step


def outcome(codec: str, split: str, steps: int, seed: int) -> Outcome:
    """One run, in a process of its own."""
    torch.set_num_threads(1)
    logging.getLogger("starlings").setLevel(logging.ERROR)
    swarm = SimulatedSwarm(
        NODES,
        seed=seed,
        workload=Digits(NODES, split=split, seed=seed),  # type: ignore[arg-type]
        compute=Paced(mean=1.0, variation=0.1, seed=seed),
        underlay=Underlay(seed, access=Line(latency=0.05)),
        config=replace(LAN, exchange=replace(LAN.exchange, block_bytes=BLOCK, codec=codec)),
        sample=1.0,
    )
    swarm.run(seconds=float(steps))
    last = swarm.samples[-max(1, steps // 5) :]
    sent = sum(report.sent for node in swarm.nodes for report in node.reports) / sum(node.steps for node in swarm.nodes)
    return Outcome(statistics.fmean(s.average for s in last), statistics.fmean(s.nodes for s in last), sent)


def line(codec: str, runs: Sequence[Outcome], base: Sequence[Outcome]) -> str:
    average, nodes = (
        [getattr(run, field) - getattr(first, field) for run, first in zip(runs, base, strict=True)]
        for field in ("average", "nodes")
    )
    share = statistics.fmean(run.sent for run in runs) / statistics.fmean(first.sent for first in base)
    return f"{codec:14} {share:7.3f} {statistics.fmean(average):+9.4f} {min(average):+9.4f} " + (
        f"{statistics.fmean(nodes):+9.4f} {min(nodes):+9.4f}"
    )


def table(pool: ProcessPoolExecutor, split: str, codecs: Sequence[str], given: argparse.Namespace) -> None:
    """The first row in absolute numbers."""
    names = ["raw", *codecs]
    runs = {name: [pool.submit(outcome, name, split, given.steps, seed) for seed in range(given.seeds)] for name in names}
    base = [run.result() for run in runs["raw"]]
    average, nodes = (statistics.fmean(getattr(run, field) for run in base) for field in ("average", "nodes"))
    print(f"\n{split}, {given.steps} steps, {given.seeds} seeds: raw float32 is at {average:.4f} (nodes {nodes:.4f})")
    heads = ("bytes", "average", "worst", "nodes", "worst")
    print(f"{'codec':14} {heads[0]:>7} " + " ".join(f"{head:>9}" for head in heads[1:]), "  (differences from raw)", flush=True)
    for name in codecs:
        print(line(name, [run.result() for run in runs[name]], base), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", choices=("sorted", "shuffled"), help="else both")
    parser.add_argument("--codecs", default=CODECS, help="between semicolons")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    given = parser.parse_args()
    began = time.perf_counter()
    with ProcessPoolExecutor(given.jobs) as pool:
        for split in (given.split,) if given.split else ("shuffled", "sorted"):
            table(pool, split, given.codecs.split(";"), given)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
