"""Work shared out: 500 seeds in virtual time, then real processes, one of them slow, one beside a CPU hog, one killed.

python scripts/bench/leases.py            # all; about five minutes on two cores
python scripts/bench/leases.py slow hog   # these
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from p2p.sim.work import Job as SimulatedJob
from p2p.sim.work import WorkWorld
from tests.integration.work_swarm import Job, WorkSwarm, wait
from tests.simulation.test_leases import churned

HOG = "x = 1\nwhile True: x = x * 3 % 1000003"


def seeds(count: int = 500) -> str:
    """Five nodes, two deaths, one joiner."""
    worlds = [churned(seed) for seed in range(count)]
    missing = sum(world.ledger.missing(world.job) for world in worlds)
    doubled = Counter(world.ledger.doubled() for world in worlds)
    return f"{count} seeds: {missing} samples lost; chunks done twice -> runs: {dict(sorted(doubled.items()))}"


def messages() -> str:
    """What the news costs: steps of 0.16 s, for 4 to 64 nodes."""
    found = []
    for nodes in (4, 16, 64):
        world = WorkWorld(SimulatedJob(chunks=60 * nodes), nodes).run()
        found.append(f"{nodes} nodes {world.ledger.messages / nodes / world.loop.time():.0f}")
    return "messages a second and node: " + ", ".join(found)


def slow() -> str:
    """Four processes, one of which waits four times as long for each sample."""
    ends, began = _ends(Job(length=7680, pace=0.01, epochs=2, wait_for=4), {"pace": 0.04})
    ideal = 7680 * 0.01 / 3.25
    second = [end[1] - max(e[0] for e in ends) for end in ends]
    first = [end[0] - began for end in ends]
    return (
        f"one 4x slower: epoch 1 {min(first):.1f} to {max(first):.1f} s, epoch 2 {min(second):.1f} to {max(second):.1f} s; "
        f"ideal {ideal:.1f} s"
    )


def hog() -> str:
    """Two processes, each on a core of its own; an endless loop shares the core of the first."""
    beside = subprocess.Popen([sys.executable, "-c", HOG])
    os.sched_setaffinity(beside.pid, {0})
    try:
        ends, began = _ends(Job(length=4000, burn=10, epochs=3, wait_for=2, cpu=0), {"cpu": 1}, nodes=2)
    finally:
        beside.kill()
        beside.wait()
    starts = [began, max(end[0] for end in ends), max(end[1] for end in ends)]
    spans = [[end[epoch] - starts[epoch] for end in ends] for epoch in range(3)]
    return "CPU hog beside one: longest to shortest epoch end " + ", ".join(f"{max(s) / min(s):.2f}" for s in spans)


def death() -> str:
    """Four processes of 30 chunks each; one is killed in the middle."""
    job = Job(length=4 * 30 * 16, pace=0.04, wait_for=4)
    calm = _span(job, kill=False)
    return f"30 chunks each: epoch {calm:.1f} s; one killed at half of it: {_span(job, kill=True):.1f} s for the others"


def _ends(job: Job, last: dict[str, object], nodes: int = 4) -> tuple[list[dict[int, float]], float]:
    """Each worker's ends of epochs, and when the first step was; the last worker differs."""
    with tempfile.TemporaryDirectory() as folder, WorkSwarm(Path(folder), job) as swarm:
        swarm.start(nodes - 1)
        swarm.start(1, **last)
        swarm.finish()
        return [worker.ends for worker in swarm.workers], _began(swarm)


def _span(job: Job, kill: bool) -> float:
    with tempfile.TemporaryDirectory() as folder, WorkSwarm(Path(folder), job) as swarm:
        workers = swarm.start(4)
        if kill:
            wait(lambda: len(workers[2].seen) >= 15 * 16, workers[2])
            workers[2].kill()
        swarm.finish()
        assert len(swarm.counts) == job.length
        return max(line["t"] for worker in workers for line in worker.lines if "done" in line) - _began(swarm)


def _began(swarm: WorkSwarm) -> float:
    """The first step, less its own time."""
    return min(line["t"] for worker in swarm.workers for line in worker.lines if "step" in line) - 16 * swarm.job.pace


def main() -> None:
    everything = {function.__name__: function for function in (seeds, messages, slow, hog, death)}
    for name in sys.argv[1:] or everything:
        began = time.monotonic()
        print(f"{everything[name]()}   [{time.monotonic() - began:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
