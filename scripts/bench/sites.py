"""Many nodes in several datacenters, simulated: what a topology that knows the sites and codecs that know the links are worth.

    python scripts/bench/sites.py                          # 20 nodes, 5 sites, 100 Mbit between two sites
    python scripts/bench/sites.py --nodes 100 --rows 0,2   # takes long
    python scripts/bench/sites.py --nodes 8 --sites 2 --split sorted --wan 20mbit --rows 2,5    # need moments cross?

A model that counts as 100 MB, and as much momentum; steps of 0.5 s; each host has a line of 10 Gbit, each pair of sites one
of `--wan` and 20 ms. Digits are dealt over all nodes, which go to the sites in turn. Printed per row: megabytes that cross
between sites per step (of all nodes together), virtual seconds until the average model, and until the mean of the nodes' own
accuracies, is at 0.95, and both at the end.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import torch

from p2p.config import LAN, ExchangeConfig
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Digits
from p2p.units import bandwidth

MODEL = 100e6
STEP = 0.5
BLOCK = 4096
GOAL = 0.95
ROWS = (
    ("one-peer-exponential", "raw"),
    ("one-peer-exponential", "auto"),
    ("two-level", "auto"),
    ("two-level", "BETWEEN=top-k:100"),
    ("two-level", "raw"),
    ("two-level", "auto,BETWEEN=parameters:auto"),
)


def rule(codec: str, sites: int) -> str:
    """`BETWEEN` stands for every pair of sites."""
    everywhere, between, name = codec.rpartition("BETWEEN=")
    pairs = [f"site{a}:site{b}={name}" for a in range(sites) for b in range(a)]
    return everywhere + ",".join(pairs) if between else codec


def exchange(scale: float, codec: str) -> ExchangeConfig:
    """Credits as they would be for the larger model."""
    start = max(int(LAN.exchange.credit_start / scale), BLOCK)
    most = max(int(LAN.exchange.credit_max / scale), 4 * BLOCK)
    return replace(LAN.exchange, block_bytes=BLOCK, message_bytes=BLOCK, credit_start=start, credit_max=most, codec=codec)


def line(topology: str, codec: str, given: argparse.Namespace) -> str:
    """One run, in a process of its own."""
    torch.set_num_threads(1)
    logging.getLogger("starlings").setLevel(logging.ERROR)
    digits = Digits(given.nodes, split=given.split, seed=1)
    scale = MODEL / (4 * sum(p.numel() for p in digits.model(0).parameters()))
    between = Line(latency=0.02, bandwidth=bandwidth(given.wan))
    underlay = Underlay(1, access=Line(latency=0.0005, bandwidth=10e9 / 8), between=between)
    swarm = SimulatedSwarm(
        given.nodes,
        seed=1,
        topology=topology,
        workload=digits,
        compute=Paced(mean=STEP, variation=0.1, seed=1),
        underlay=underlay,
        sites=[f"site{i}" for i in range(given.sites)],
        config=replace(LAN, exchange=exchange(scale, rule(codec, given.sites))),
        scale=scale,
        sample=1.0,
    )
    swarm.run(seconds=given.seconds)
    crossed = underlay.traffic()[1] / (given.seconds / STEP) / 1e6
    average = next((s.time for s in swarm.samples if s.average >= GOAL), math.inf)
    nodes = next((s.time for s in swarm.samples if s.nodes >= GOAL), math.inf)
    last = swarm.samples[-1]
    return f"{topology:22} {codec:28} {crossed:9.1f} {average:8.0f} {nodes:8.0f} {last.average:9.3f} {last.nodes:7.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--wan", default="100mbit", help="between two sites, each way")
    parser.add_argument("--split", choices=("sorted", "shuffled"), default="shuffled")
    parser.add_argument("--seconds", type=float, default=25.0, help="virtual ones")
    parser.add_argument("--rows", default="", help="numbers of rows, from 0, between commas; else all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    given = parser.parse_args()
    began = time.perf_counter()
    rows = [ROWS[int(row)] for row in given.rows.split(",")] if given.rows else ROWS
    print(f"{given.nodes} nodes, {given.sites} sites, {given.wan} between two, {given.split}, {given.seconds:g} s")
    print(f"{'topology':22} {'codec':28} {'WAN MB':>9} {'average':>8} {'nodes':>8} {'average':>9} {'nodes':>7}")
    print(f"{'':51} {'per step':>9} {'s to .95':>8} {'s to .95':>8} {'at end':>9} {'at end':>7}")
    with ProcessPoolExecutor(given.jobs) as pool:
        for run in [pool.submit(line, topology, codec, given) for topology, codec in rows]:
            print(run.result(), flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
