"""What simulating a swarm costs: real agents over the simulated network, vectors of 64, one-peer exponential, 100 rounds.

    python scripts/bench/simulator.py                       # 64, 256 and 1,000 nodes
    python scripts/bench/simulator.py --nodes 256 --algorithm gossip
    python scripts/bench/simulator.py --nodes 64 --profile  # where the time goes

Each row is a process of its own with one torch thread. CPU and wall time are those of the whole run, founding of the swarm
included (given apart as well), imports aside. Memory is the process's peak.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging

ROUNDS, STEP = 100, 0.15


class Timed(SimulatedSwarm):
    """Notes the CPU seconds after which the swarm is founded."""

    founded = 0.0

    async def _found(self) -> None:
        await super()._found()
        self.founded = time.process_time()


def run(nodes: int, algorithm: str, rounds: int, step: float) -> Timed:
    """Steps of so many seconds, give or take; messages take 1 to 2 ms."""
    lines = Underlay(access=Line(5e-4, 5e-4, 1e9))
    swarm = Timed(nodes, algorithm=algorithm, workload=Averaging(64), compute=Paced(step, 0.1), underlay=lines)
    swarm.run(steps=rounds)
    return swarm


def row(nodes: int, algorithm: str, rounds: int, step: float) -> str:
    """One line of the table, measured in this process."""
    torch.set_num_threads(1)
    run(2, algorithm, 1, step)  # imports
    cpu, wall = time.process_time(), time.perf_counter()
    swarm = run(nodes, algorithm, rounds, step)
    found, cpu, wall = swarm.founded - cpu, time.process_time() - cpu, time.perf_counter() - wall
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    mixed = sum(node.agent.exchange.mean_round for node in swarm.nodes if node.agent.exchange is not None) / nodes
    each = cpu / nodes / rounds * 1e6
    return f"{nodes:6} {cpu:8.1f} {found:8.1f} {wall:8.1f} {each:18.0f} {memory:8.0f} {mixed:18.1f} {swarm.distance():10.2g}"


def profile(nodes: int, algorithm: str, rounds: int, step: float) -> None:
    torch.set_num_threads(1)
    with cProfile.Profile() as profiler:
        run(nodes, algorithm, rounds, step)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[64, 256, 1000])
    parser.add_argument("--algorithm", default="async")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--step", type=float, default=STEP, help="virtual seconds; longer: more probes between two rounds")
    parser.add_argument("--profile", action="store_true", help="print where the time of the first size goes instead")
    given = parser.parse_args()
    if given.profile:
        profile(given.nodes[0], given.algorithm, given.rounds, given.step)
        return
    print(f" nodes    CPU s  founded   wall s  us/node and round      MiB  exchanges a node   distance   ({given.algorithm})")
    for nodes in given.nodes:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            print(fresh.submit(row, nodes, given.algorithm, given.rounds, given.step).result(), flush=True)


if __name__ == "__main__":
    main()
