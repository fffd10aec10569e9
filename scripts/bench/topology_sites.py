"""Time to consensus over three datacenters, simulated through the real agents: which topology suits thin links.

    python scripts/bench/topology_sites.py      # 16 nodes, 3 sites, LAN 10 Gbit, WAN 100 Mbit; 100 MB a payload

Synchronous gossip without a deadline, vectors that are only averaged: the virtual seconds until the distance to the mean
is a thousandth of what it was.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

import torch
from torch import nn

from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging

LAN, WAN = 10e9 / 8, 100e6 / 8
"""Bytes a second: of a host's line, and of the line between two sites."""
PAYLOAD = 100e6
ELEMENTS = 64
NAMES = ("ring", "one-peer-exponential", "base:k=1", "two-level", "two-level:between=complete", "adaptive")


@dataclass(frozen=True)
class Watched(Averaging):
    """Looks at the swarm whenever a node computes."""

    seen: list[tuple[float, float]] = field(default_factory=list)
    swarm: list[SimulatedSwarm] = field(default_factory=list)

    def gradient(self, node: int, model: nn.Module) -> None:
        swarm = self.swarm[0]
        self.seen.append((swarm._loop.time(), swarm.distance()))


def seconds(topology: str, nodes: int, sites: int, steps: int) -> float | None:
    """Virtual seconds to a thousandth of the distance; None if it was not reached in so many steps."""
    workload = Watched(ELEMENTS, seed=1)
    underlay = Underlay(1, access=Line(0.0005, bandwidth=LAN), between=Line(0.02, bandwidth=WAN))
    swarm = SimulatedSwarm(
        nodes,
        seed=1,
        topology=topology,
        algorithm="gossip:deadline=off",
        workload=workload,
        compute=Paced(0.001),
        underlay=underlay,
        sites=[f"site{i}" for i in range(sites)],
        scale=PAYLOAD / (8 * ELEMENTS),
    )
    workload.swarm.append(swarm)
    swarm.run(steps=steps)
    target = 1e-3 * workload.seen[0][1]
    return next((at for at, distance in workload.seen if distance <= target), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("-n", "--nodes", type=int, default=16)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.names:
        found = seconds(name, args.nodes, args.sites, args.steps)
        print(f"{name:30s} {'not reached' if found is None else f'{found:10.1f} s'}", flush=True)


if __name__ == "__main__":
    main()
