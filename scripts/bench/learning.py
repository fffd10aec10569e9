"""How fast and how well each method learns: digits dealt to eight simulated nodes, beside all-reduce and training alone.

    python scripts/bench/learning.py                              # the whole table
    python scripts/bench/learning.py --methods async --seeds 1    # rows with this word
    python scripts/bench/learning.py --split sorted --seconds 120

A step computes for 150 ms (10 % variation), and on node 0 five times as long in the second table. The model counts as 100 MB;
each node has a line of `--bandwidth` and 1 ms. All-reduce is synchronous: the slowest node's computation, then a ring that
moves 2 (n - 1) / n models over each line. Printed per row, as medians over the seeds: virtual seconds and steps until the
average model is at 0.95, the accuracy of the average and the mean of the nodes' at the end, megabytes sent per node and step,
and how far the models are apart (root mean square, over all seconds). Runs go to as many processes as there are cores.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, fields, replace

import torch
from torch import nn

import optim
from p2p.config import LAN, ExchangeConfig
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.swarm import Sample, SimulatedSwarm
from p2p.sim.workloads import Digits
from p2p.units import bandwidth

NODES, STEP, SLOW, MODEL = 8, 0.15, 5.0, 100e6
GOAL = 0.95
SWAPPED, PUSHED = 1024, 4096  # bytes of a block, of a model of 19 KB: 5 MB where swaps pass each other, else 21 MB


@dataclass(frozen=True)
class Method:
    """One row. `algorithm` None is all-reduce."""

    name: str
    algorithm: str | None
    topology: str = "one-peer-exponential"
    optimizer: str = "sgd"
    momentum: float = 0.9
    lr: float | None = None
    codec: str = "raw"


METHODS = (
    Method("all-reduce", None),
    Method("alone", "local:period=1000000000"),
    Method("async", "async"),
    Method("async, bfloat16", "async", codec="bfloat16"),
    Method("async, int8", "async", codec="int8"),
    Method("async, int4", "async", codec="int4"),
    Method("async, random-k", "async", codec="random-k:10"),
    Method("async, auto", "async", codec="auto"),
    Method("async, shared momentum", "async:momentum=shared"),
    Method("async, quasi-global", "async:momentum=quasi-global", momentum=0.0),
    Method("async, local momentum", "async:momentum=local"),
    Method("async, random partners", "async:partners=random", "complete"),
    Method("async, every 4", "async:period=4"),
    Method("async, momentum 0.9 by staleness", "async:target=0.9"),
    Method("AD-PSGD", "ad-psgd", "complete"),
    Method("gossip", "gossip"),
    Method("gossip, tracked momentum", "gossip:momentum=tracked"),
    Method("gossip, overlapped", "gossip:overlap=yes"),
    Method("gossip, local momentum", "gossip:momentum=local"),
    Method("gossip, quasi-global", "gossip:momentum=quasi-global", momentum=0.0),
    Method("local SGD, every 8", "local", "complete"),
    Method("local SGD, every 8, tracked", "local:momentum=tracked", "complete"),
    Method("local SGD, every 10, tracked", "local:period=10,momentum=tracked", "complete", lr=0.03),
    Method("DreamDDP, every 8", "dreamddp"),
    Method("gossip, exact average every 8", "pga"),
    Method("OD-SGD", "od-sgd"),
    Method("RelaySum, plain", "relay-sum", "binary-tree", momentum=0.0, lr=0.5),
    Method("gossip on the same tree, plain", "gossip", "binary-tree", momentum=0.0, lr=0.5),
    Method("block-cyclic, 4", "block-cyclic"),
    Method("local SGD, every 8, own momentum", "local:momentum=local", "complete"),
    Method("SlowMo, every 8, own momentum", "slowmo:momentum=local", "complete"),
    Method("SlowMo, every 8", "slowmo", "complete"),
    Method("DiLoCo, every 8", "diloco", "complete"),
    Method("PALSGD, every 8", "palsgd", "complete"),
    Method("overlapped local SGD, every 8", "oldsgd", "complete"),
    Method("elastic", "elastic"),
    Method("aged", "aged"),
    Method("progressive", "progressive"),
    Method("line search", "line-search"),
    Method("PSO", "pso"),
    Method("EXTRA", "extra", "ring", momentum=0.0),
    Method("SelSync, 0.3", "selsync"),
    Method("layer-wise, every 5", "layerwise"),
    Method("async, every 5", "async:period=5"),
    Method("async, every 6", "async:period=6"),
    Method("push-sum", "push-sum"),
    Method("push-sum, overlapped", "push-sum:overlap=yes"),
    Method("gradient tracking", "gradient-tracking"),
    Method("momentum tracking", "momentum-tracking", momentum=0.0),
    Method("DecentLaM", "decentlam", momentum=0.0),
    Method("D2", "d2", "ring:weights=lazy"),
    Method("all-reduce, Adam", None, optimizer="adam"),
    Method("async, Adam", "async", optimizer="adam"),
    Method("async, Adam, shared moments", "async:momentum=shared", optimizer="adam"),
    Method("async, SwarmAdam", "async", optimizer="swarm-adam"),
    Method("async, AccumAdam", "async", optimizer="accum-adam"),
    Method("gossip, Adam", "gossip", optimizer="adam"),
    Method("gossip, SwarmAdam", "gossip", optimizer="swarm-adam"),
)


@dataclass(frozen=True)
class Outcome:
    """One run."""

    seconds: float  # until the average is at GOAL; infinite if never
    steps: float  # of the median node until then
    average: float
    nodes: float
    megabytes: float  # per node and step
    distance: float = 0.0  # of the nodes to their mean, over the run


@dataclass(frozen=True)
class World:
    """What all rows of a table have in common."""

    split: str
    slow: float
    bandwidth: float  # bytes a second
    seconds: float


def compute(world: World, seed: int) -> Paced:
    return Paced(mean=STEP, variation=0.1, slow={0: world.slow}, seed=seed)


def work(method: Method, world: World, seed: int) -> Digits:
    return Digits(
        NODES,
        split=world.split,  # type: ignore[arg-type]
        seed=seed,
        optimizer_name=method.optimizer,  # type: ignore[arg-type]
        momentum=method.momentum,
        learning_rate=method.lr,
    )


def all_reduce(method: Method, world: World, seed: int) -> Outcome:
    """One model, trained on the mean of all nodes' gradients."""
    digits, pace = work(method, world, seed), compute(world, seed)
    model = digits.model(0)
    optimizer = digits.optimizer(model)
    transfer = 2 * (NODES - 1) / NODES * MODEL
    now, steps, reached = 0.0, 0, math.inf
    while now < world.seconds:
        now += max(pace.seconds(node, steps) for node in range(NODES)) + transfer / world.bandwidth
        for p, mean in zip(model.parameters(), mean_gradients(digits, model), strict=True):
            p.grad = mean
        optimizer.step()
        steps += 1
        if math.isinf(reached) and digits.score(model) >= GOAL:
            reached = now
    score = digits.score(model)
    return Outcome(reached, steps * reached / now, score, score, transfer / 1e6)


def mean_gradients(digits: Digits, model: nn.Module) -> Iterator[torch.Tensor]:
    gradients = []
    for node in range(NODES):
        digits.gradient(node, model)
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    return (torch.stack(parts).mean(0) for parts in zip(*gradients, strict=True))


def simulated(method: Method, world: World, seed: int) -> Outcome:
    """The real agents under a virtual clock."""
    assert method.algorithm is not None
    digits = work(method, world, seed)
    size = sum(p.numel() for p in digits.model(0).parameters()) * 4
    swaps = optim.make(method.algorithm).exchange == "swap"
    swarm = SimulatedSwarm(
        NODES,
        seed=seed,
        topology=method.topology,
        algorithm=method.algorithm,
        workload=digits,
        compute=compute(world, seed),
        underlay=Underlay(seed, access=Line(latency=0.0005, bandwidth=world.bandwidth)),
        config=replace(LAN, exchange=replace(scaled(MODEL / size, SWAPPED if swaps else PUSHED), codec=method.codec)),
        scale=MODEL / size,
        sample=1.0,
    )
    swarm.run(seconds=world.seconds)
    last: Sample = swarm.samples[-1]
    reached = swarm.reached(GOAL)
    steps = statistics.median(node.steps for node in swarm.nodes)
    sent = sum(report.sent for node in swarm.nodes for report in node.reports) / sum(node.steps for node in swarm.nodes)
    until = math.inf if reached is None else reached
    apart = statistics.fmean(sample.distance for sample in swarm.samples)
    return Outcome(until, steps * until / world.seconds, last.average, last.nodes, sent * MODEL / size / 1e6, apart)


def scaled(scale: float, block: int) -> ExchangeConfig:
    """Credits as they would be for the larger model, and one block in each message."""
    start, most = (max(int(credit / scale), 4 * block) for credit in (LAN.exchange.credit_start, LAN.exchange.credit_max))
    return replace(LAN.exchange, block_bytes=block, message_bytes=block, credit_start=start, credit_max=most)


def outcome(method: Method, world: World, seed: int) -> Outcome:
    """One run, in a process of its own."""
    torch.set_num_threads(1)
    logging.getLogger("starlings").setLevel(logging.ERROR)
    return (all_reduce if method.algorithm is None else simulated)(method, world, seed)


def line(method: Method, runs: Sequence[Outcome]) -> str:
    middle = {field.name: statistics.median(getattr(run, field.name) for run in runs) for field in fields(Outcome)}
    return (
        f"{method.name:34} {middle['seconds']:8.1f} {middle['steps']:7.0f} {middle['average']:8.3f} {middle['nodes']:7.3f} "
        f"{middle['megabytes']:8.1f} {middle['distance']:8.4f}"
    )


def table(pool: Executor, world: World, methods: Sequence[Method], seeds: int) -> None:
    """Lines appear in order, each as soon as its runs and those before it are done."""
    print(f"{'method':34} {'s to .95':>8} {'steps':>7} {'average':>8} {'nodes':>7} {'MB/step':>8} {'apart':>8}")
    under_way = [(method, [pool.submit(outcome, method, world, seed) for seed in range(seeds)]) for method in methods]
    for method, runs in under_way:
        print(line(method, [run.result() for run in runs]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="", help="rows with this in their name; several between semicolons")
    parser.add_argument("--split", choices=("sorted", "shuffled"), help="else both")
    parser.add_argument("--slow", type=float, help="factor of node 0; else 1 and 5")
    parser.add_argument("--bandwidth", default="1gbit", help="of each node's line")
    parser.add_argument("--seconds", type=float, default=80.0, help="virtual ones")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    given = parser.parse_args()
    wanted = given.methods.lower().split(";")
    methods = [method for method in METHODS if any(word.strip() in method.name.lower() for word in wanted)]
    began = time.perf_counter()
    with ProcessPoolExecutor(given.jobs) as pool:
        for split in (given.split,) if given.split else ("sorted", "shuffled"):
            for slow in (given.slow,) if given.slow else (1.0, SLOW):
                print(f"\n{split}, node 0 {slow:g}x slower, {given.bandwidth}, {given.seconds:g} s, {given.seeds} seeds")
                table(pool, World(split, slow, bandwidth(given.bandwidth), given.seconds), methods, given.seeds)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
