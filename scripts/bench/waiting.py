"""What steps wait for where a line carries less than a model in a step: a period's exchange in one burst, or in parts.

    python scripts/bench/waiting.py
    python scripts/bench/waiting.py --bandwidth 50mbit --period 10 --variation 0.1

Eight simulated nodes of one-peer exponential rounds, a step of 150 ms, a model that counts with its momentum as 5 MB, lines of
1 ms. Printed per algorithm: milliseconds that a step waits on average after the first periods, their share in what the burst
waits, and megabytes that a node sends per step. With a `--variation` of step times nodes also wait for each other.
"""

from __future__ import annotations

import argparse
import logging
from dataclasses import dataclass, replace
from statistics import mean

import torch

from p2p.config import LAN
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Digits
from p2p.units import bandwidth

NODES, STEP, STATE = 8, 0.15, 5e6
BLOCK = 256  # bytes of the small model's blocks
ALGORITHMS = ("local", "oldsgd", "dreamddp", "layerwise")
"""The burst comes first."""


@dataclass(frozen=True)
class Waited:
    """Of one run; per step."""

    seconds: float
    megabytes: float


def waited(algorithm: str, period: int, line: float, variation: float = 0.0, steps: int = 60) -> Waited:
    """`line` in bytes a second; steps of the first two periods don't count."""
    work = Digits(NODES, split="shuffled")
    scale = STATE / (8 * sum(p.numel() for p in work.model(0).parameters()))
    credit = max(int(LAN.exchange.credit_start / scale), 4 * BLOCK)
    exchange = replace(LAN.exchange, block_bytes=BLOCK, message_bytes=4 * BLOCK, credit_start=credit)
    swarm = SimulatedSwarm(
        NODES,
        algorithm=f"{algorithm}:period={period}",
        workload=work,
        compute=Paced(mean=STEP, variation=variation),
        underlay=Underlay(access=Line(latency=0.0005, bandwidth=line)),
        config=replace(LAN, exchange=exchange),
        scale=scale,
    ).run(steps=steps)
    reports = [report for node in swarm.nodes for report in node.reports[2 * period :]]
    return Waited(mean(report.wait for report in reports), scale * mean(report.sent for report in reports) / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bandwidth", default="100mbit", help="of each node's line")
    parser.add_argument("--period", type=int, default=5, help="steps")
    parser.add_argument("--variation", type=float, default=0.0, help="coefficient of variation of step times")
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("starlings").setLevel(logging.ERROR)
    print(f"{given.bandwidth}, period {given.period}, variation {given.variation:g}")
    print(f"{'algorithm':10} {'ms waited':>10} {'of the burst':>13} {'MB/step':>8}")
    burst = None
    for algorithm in ALGORITHMS:
        found = waited(algorithm, given.period, bandwidth(given.bandwidth), given.variation)
        burst = found.seconds if burst is None else burst
        print(f"{algorithm:10} {1e3 * found.seconds:10.1f} {found.seconds / burst:13.1%} {found.megabytes:8.2f}", flush=True)


if __name__ == "__main__":
    main()
