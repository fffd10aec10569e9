"""What a node's step costs as the swarm grows: messages, bytes, the agent's CPU time, memory; one-peer exponential graph.

    python scripts/bench/scale.py                                       # about 4 minutes
    python scripts/bench/scale.py --real 2 4 --simulated 16 64 --turns 1

Real: so many processes of this machine, steps that wait 150 ms, one block of 64 KiB that all average. CPU time is that of all
threads but the trainer's: the agent and its I/O. Memory is what is resident of one process. Simulated: the same agents and
steps under a virtual clock, a new process for each size; CPU time is the whole process's over nodes and steps, the simulated
network included, the founding of the swarm not; memory is the process's peak beyond that of two nodes, over nodes. Messages and
bytes are all that is sent, membership included. All sizes are run in turn; shown are medians of turns.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import fmean

import torch
from counting import Counting
from harness import Contender, Crew, Failed, Spread, Table, Target, excused, ours, parser, publish, say, targets

from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.node import SimulatedNode
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging

WHAT = ("messages", "bytes", "cpu", "memory")
FLAT = {"messages": 1.2, "bytes": 1.2, "cpu": 1.5}
"""Most of a figure over least, over sizes from 4 real nodes and from 16 simulated ones."""
FROM = {"real": 4, "simulated": 16}
SIZE = 8192
"""Elements of float64: 64 KiB, one block."""

Figures = dict[str, list[float]]


# --- real ------------------------------------------------------------------------------------------------------------


def real(nodes: int, algorithm: str, step: float, steps: int) -> Figures:
    """Of one crew; each node's own figures. Raises Failed."""
    with Crew(Contender("real", ours("scale.py", algorithm, step, steps)), nodes) as crew:
        crew.ready()
        crew.say("train")
        values = crew.say("value")
        if max(values) - min(values) > 1e-2 * nodes:
            raise Failed(f"the nodes do not average: {min(values):.3g} to {max(values):.3g}")
        found = crew.say("train")
        return {**{what: [f[what] for f in found] for what in WHAT[:3]}, "memory": crew.say("memory")}


# --- simulated -------------------------------------------------------------------------------------------------------


class Counted(SimulatedSwarm):
    """Counts from the moment at which the swarm is founded."""

    async def _found(self) -> None:
        await super()._found()
        self.cpu = time.process_time()

    def _make(self, index: int) -> SimulatedNode:
        node = super()._make(index)
        self.counts = [*getattr(self, "counts", []), Counting(node.agent.transport)]
        return node


def simulated(nodes: int, algorithm: str, step: float, steps: int) -> dict[str, float]:
    """In a new process."""
    torch.set_num_threads(1)
    _swarm(2, algorithm, step, 2)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    swarm = _swarm(nodes, algorithm, step, steps)
    cpu = time.process_time() - swarm.cpu
    done = sum(node.steps for node in swarm.nodes)
    memory = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    sent = {what: sum(getattr(count, what) for count in swarm.counts) / done for what in ("messages", "bytes")}
    return {**sent, "cpu": cpu / done, "memory": memory / nodes, "distance": swarm.distance()}


def _swarm(nodes: int, algorithm: str, step: float, steps: int) -> Counted:
    lines = Underlay(access=Line(5e-4, 5e-4, 1e9))
    swarm = Counted(nodes, algorithm=algorithm, workload=Averaging(SIZE), compute=Paced(step, 0.1), underlay=lines)
    swarm.run(steps=steps)
    return swarm


def in_new_process(nodes: int, algorithm: str, step: float, steps: int) -> Figures:
    """Raises Failed where the swarm does not average: standard normal vectors must have come near each other."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        found = fresh.submit(simulated, nodes, algorithm, step, steps).result()
    if found.pop("distance") > 0.1:
        raise Failed("the simulated nodes do not average")
    return {what: [figure] for what, figure in found.items()}


# --- all of it -------------------------------------------------------------------------------------------------------


def grow(
    sizes: Mapping[str, Sequence[int]], turns: int, *setting: object
) -> tuple[dict[str, dict[int, Figures]], dict[str, str]]:
    """All sizes in turn: figures by kind and size, and which size failed, why."""
    found: dict[str, dict[int, Figures]] = {kind: {} for kind in sizes}
    failed: dict[str, str] = {}
    for turn in range(turns):
        for kind, way in (("real", real), ("simulated", in_new_process)):
            for nodes in sizes[kind]:
                say(f"turn {turn + 1} of {turns}: {nodes} {kind}")
                with excused(f"{nodes} {kind}", failed):
                    for what, figures in way(nodes, *setting).items():  # type: ignore[arg-type]
                        found[kind].setdefault(nodes, {}).setdefault(what, []).append(fmean(figures))
    return found, failed


def flatness(by_size: Mapping[int, Figures], begin: int, what: str) -> float | None:
    """The largest median over the least, of sizes from `begin` on."""
    medians = [Spread.of(figures[what]).median for nodes, figures in by_size.items() if nodes >= begin]
    return max(medians) / min(medians) if len(medians) > 1 else None


def table(kind: str, by_size: Mapping[int, Figures], failed: Mapping[str, str]) -> Table:
    units = {"messages": (1.0, 2), "bytes": (1024.0, 1), "cpu": (1e-6, 0), "memory": (2.0**20, 1)}
    rows = [(f"{nodes}", *(Spread.of(figures[what]).text(*units[what]) for what in WHAT)) for nodes, figures in by_size.items()]
    rows += [(f"{name}: {reason.splitlines()[-1][:100]}", "", "", "", "") for name, reason in failed.items() if kind in name]
    return Table(f"{kind} nodes, a node and step", ("nodes", "messages", "KiB sent", "CPU us", "MiB of a node"), rows)


def aims(found: Mapping[str, Mapping[int, Figures]]) -> list[Target]:
    return [
        Target(
            f"{kind}: {what} a node and step, most over least from {begin} nodes on", most, flatness(found[kind], begin, what)
        )
        for kind, begin in FROM.items()
        for what, most in FLAT.items()
    ]


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--real", type=int, nargs="*", default=[2, 4, 8, 16])
    made.add_argument("--simulated", type=int, nargs="*", default=[16, 64, 256, 1000])
    made.add_argument("--turns", type=int, default=1)
    made.add_argument("--step", type=float, default=0.15, help="seconds that a step waits")
    made.add_argument("--steps", type=int, default=40)
    made.add_argument("--algorithm", default="async")
    args = made.parse_args()
    sizes = {"real": args.real, "simulated": args.simulated}
    found, failed = grow(sizes, args.turns, args.algorithm, args.step, args.steps)
    tables = [*(table(kind, by_size, failed) for kind, by_size in found.items()), targets(aims(found))]
    publish("scale", args, tables, {"figures": found, "failed": failed})


if __name__ == "__main__":
    main()
