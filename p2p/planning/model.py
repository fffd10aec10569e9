"""What a scenario would come to, without its agents: all nodes' vectors in one matrix, and time by recursion.

A synchronous round is X <- W X with the simulation's own step times, graphs and members; each message takes its latency and the
time of the most loaded line on its way. A swap takes its time each way, and brings together what the two were when it began and
what they have become. Left out: deadlines, and queues beyond a line's share. Quadratics only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

import numpy as np
import numpy.typing as npt
import torch

import optim
import topology
from optim import Algorithm
from optim import codec as codecs
from p2p.config import LAN
from p2p.errors import ConfigError
from p2p.sim.node import identity
from p2p.sim.scenario import STEPS_MAX, Scenario
from p2p.sim.workloads import Quadratics
from topology import Member, Mixing

Array = npt.NDArray[np.float64]
MODELLED = ("async", "gossip", "local")
OPEN_MAX = LAN.exchange.open_max
MANY = 1 << 16
"""Elements for which a codec's ratio is taken."""
WAYS = 2
"""A node's line carries its own swaps and, on average, as many that others ask for."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Until the target is reached: virtual seconds (infinite if never), steps of the mean node, bytes of all nodes together."""

    seconds: float
    steps: float
    nbytes: float


def predict(scenario: Scenario) -> Prediction:
    """Raises ConfigError for a scenario that it has no model of."""
    work = scenario.work()
    algorithm = None if scenario.central else optim.make(scenario.algorithm)
    if not isinstance(work, Quadratics) or scenario.until.loss is None:
        raise ConfigError("a plan is for the workload quadratic and a loss to reach, as until=loss=0.05")
    if algorithm is None or algorithm.name not in MODELLED:
        raise ConfigError(f"there is no model of {scenario.algorithm}; there are {', '.join(MODELLED)}")
    if scenario.codec not in codecs.TABLE or codecs.make(scenario.codec).form is not codecs.Form.VALUES:
        raise ConfigError(
            f"there is no model of the codec {scenario.codec}; there is of those for values, as bfloat16 and int8"
        )
    world = World(scenario, algorithm, work)
    run = _swaps(world) if algorithm.exchange == "swap" else _rounds(world)
    for step, (seconds, nbytes, steps) in enumerate(run):
        if world.loss() <= scenario.until.loss:
            return Prediction(seconds, steps, nbytes)
        if step >= (scenario.until.steps or STEPS_MAX) or seconds >= (scenario.until.time or math.inf):
            return Prediction(math.inf, steps, nbytes)
    raise AssertionError("runs have no end")


class World:
    """All nodes of a scenario, at the positions that they have in the sorted view."""

    def __init__(self, scenario: Scenario, algorithm: Algorithm, work: Quadratics) -> None:
        n = scenario.nodes
        ids = [identity(scenario.seed, index).node for index in range(n)]
        self.order = sorted(range(n), key=ids.__getitem__)
        sites = scenario.site_names
        self.members = tuple(Member(ids[index], sites[index % len(sites)]) for index in self.order)
        self.scenario = scenario
        self.algorithm = algorithm
        self.topology = topology.make(scenario.topology)
        self.bytes = scenario.model * codecs.make(scenario.codec).nbytes(MANY, torch.float32) / (4 * MANY)
        """Of the model, as the codec makes them."""
        self.x: Array = np.stack([next(work.model(index).parameters()).detach().numpy() for index in self.order])
        functions = [work.function(index) for index in self.order]
        self._matrices = np.stack([matrix.numpy() for matrix, _ in functions])
        self._centres = np.stack([centre.numpy() for _, centre in functions])
        self._minimum = work.minimum.numpy()
        self._rate = work.learning_rate
        self._compute = scenario.compute()
        self._steps = [0] * n

    def seconds(self, position: int) -> float:
        """Of this node's next step."""
        self._steps[position] += 1
        return self._compute.seconds(self.order[position], self._steps[position] - 1)

    def train(self, active: Sequence[int]) -> None:
        """One gradient step of these."""
        away = self.x[active] - self._centres[active]
        self.x[active] -= self._rate * np.einsum("nij,nj->ni", self._matrices[active], away)

    def loss(self) -> float:
        """The mean function at the mean vector, above its minimum."""
        away = self.x.mean(0) - self._minimum
        return float(away @ self._matrices.mean(0) @ away) / 2

    def mixing(self, round: int) -> Mixing:
        return self.topology.whole(self.members, round)

    def outs(self, round: int, i: int) -> list[int]:
        """Whom node i asks in this round."""
        return [j for j, _ in self.topology.row(self.members, round, i).outs]

    def pair(self, i: int, j: int) -> tuple[str, str]:
        """The sites at the two ends."""
        return self.members[i].site, self.members[j].site


# --- rounds ----------------------------------------------------------------------------------------------------------


def _rounds(world: World) -> Iterator[tuple[float, float, float]]:
    """After each step of all: seconds (of the mean node), bytes and steps so far."""
    n, size = len(world.members), world.bytes
    overlap = bool(getattr(world.algorithm, "overlap", False))
    clock, nbytes, step, since, round = np.zeros(n), 0.0, 0, 0, 0
    published, arrivals, weights = world.x.copy(), np.zeros(n), np.eye(n)
    everybody = list(range(n))
    while True:
        step, since = step + 1, since + 1
        clock = clock + [world.seconds(i) for i in everybody]
        world.train(everybody)
        if since >= world.algorithm.interval(step):
            mixing = world.mixing(round)
            if overlap:  # what was sent in the last round is taken in now
                world.x += weights @ published - published
                clock = np.maximum(clock, arrivals)
                published, arrivals, weights = world.x.copy(), _arrivals(world, mixing, clock), mixing.matrix()
            else:
                world.x = mixing.matrix() @ world.x
                clock = _arrivals(world, mixing, clock)
            nbytes += size * sum(len(row) - (i in row) for i, row in enumerate(mixing.rows))
            since, round = 0, round + 1
        yield float(clock.mean()), nbytes, float(step)


def _arrivals(world: World, mixing: Mixing, clock: Array) -> Array:
    """When each node (n,) has all that this round brings it."""
    scenario = world.scenario
    edges = [(j, i) for i, row in enumerate(mixing.rows) for j in row if i != j]
    out, into = Counter(j for j, _ in edges), Counter(i for _, i in edges)
    across = Counter(world.pair(j, i) for j, i in edges)
    patient = getattr(world.algorithm, "deadline", "") == "off"
    came = clock.copy()
    for j, i in edges:
        far = len(set(world.pair(j, i))) == 2
        line = scenario.wan if far else scenario.lan
        load = max(out[j], into[i]) / scenario.lan.bandwidth
        if far:
            load = max(load, across[world.pair(j, i)] / scenario.wan.bandwidth)
        arrival = clock[j] + line.latency + world.bytes * load
        came[i] = max(came[i], arrival)
        if patient:  # who waits for everybody also waits until his own has come, and is told
            came[j] = max(came[j], arrival + line.latency)
    return came


# --- swaps -----------------------------------------------------------------------------------------------------------


def _swaps(world: World) -> Iterator[tuple[float, float, float]]:
    """After each step time: seconds, bytes and steps of the mean node so far. Each piece of the model swaps by itself."""
    scenario, n = world.scenario, len(world.members)
    rng = np.random.default_rng([scenario.seed, 2])
    swaps = Swaps(world, rng)
    ends = np.array([world.seconds(i) for i in range(n)])
    now, done = 0.0, 0
    while True:
        now += scenario.step
        while (active := np.flatnonzero(ends <= now)).size:
            world.train(active.tolist())
            ends[active] += [world.seconds(i) for i in active.tolist()]
            done += active.size
        swaps.until(now)
        yield now, swaps.nbytes, done / n


@dataclass(frozen=True, slots=True)
class Sent:
    """What node `i` sent of a piece, or what it is answered."""

    i: int
    partner: int
    piece: int
    values: Array
    weight: float


class Swaps:
    """All pieces of all nodes: begun, answered, settled, in the order of time."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        scenario, n = world.scenario, len(world.members)
        self._world = world
        self._pieces = np.array_split(np.arange(world.x.shape[1]), min(scenario.blocks, world.x.shape[1]))
        self._size = world.bytes / len(self._pieces)
        self._lines = Lines(world, self._size)
        self._interval = max(world.algorithm.period * scenario.step, WAYS * world.bytes / scenario.lan.bandwidth)
        self._rounds = np.zeros((n, len(self._pieces)), dtype=int)
        begins = scenario.step + rng.uniform(0, self._interval, (n, len(self._pieces)))
        self._order = count()
        self._events: list[tuple[float, int, tuple[int, int] | Sent]] = []
        for i, piece in np.ndindex(*begins.shape):
            self._at(float(begins[i, piece]), (i, piece))
        self.nbytes = 0.0

    def until(self, now: float) -> None:
        """Let happen what happens until then."""
        while self._events[0][0] <= now:
            time, _, event = heappop(self._events)
            if isinstance(event, Sent):
                self._arrives(event, time)
            else:
                self._begins(*event, time)

    def _begins(self, i: int, piece: int, now: float) -> None:
        partner, self._rounds[i, piece], over = self._lines.next(i, int(self._rounds[i, piece]), now)
        step = self._world.scenario.step
        if partner is None:
            self._at(max(now + self._interval, over), (i, piece))
            return
        open = min(max(1, math.ceil((over - now) / step - 0.05)), OPEN_MAX)
        self._at(now + max(self._interval, (over - now) / open), (i, piece))
        values = self._world.x[i, self._pieces[piece]].copy()
        self._at((now + over) / 2, Sent(i, partner, piece, values, 1 / (open + 1)))
        self.nbytes += 2 * self._size

    def _arrives(self, sent: Sent, now: float) -> None:
        """At the partner, which takes a part of the difference; the other gives it up at once, not when it hears of it."""
        here, there = self._world.x[sent.i], self._world.x[sent.partner]
        piece = self._pieces[sent.piece]
        taken = sent.weight * (sent.values - there[piece])
        there[piece] += taken
        here[piece] -= taken

    def _at(self, time: float, event: tuple[int, int] | Sent) -> None:
        heappush(self._events, (time, next(self._order), event))


class Lines:
    """Whom a piece meets next, and when its node has it back. A link between sites carries one piece at a time, and all links
    between two sites share their line; within a site, what a node asks and answers shares its own."""

    def __init__(self, world: World, size: float) -> None:
        self._world = world
        scenario = world.scenario
        self._near = 2 * (scenario.lan.latency + WAYS * size / scenario.lan.bandwidth)
        self._taken = size / scenario.wan.bandwidth
        self._trip = 2 * scenario.wan.latency
        self._links: dict[tuple[int, int], float] = {}
        self._lines: dict[tuple[str, str], float] = {}

    def next(self, i: int, round: int, now: float) -> tuple[int | None, int, float]:
        """The partner, or None where all are busy; the round to go on with; when the swap is over."""
        for at in range(round, round + len(self._world.members)):
            outs = self._world.outs(at, i)
            if not outs:
                continue
            j = outs[at % len(outs)]
            sites = self._world.pair(i, j)
            if sites[0] == sites[1]:
                return j, at + 1, now + self._near
            if self._links.get((i, j), 0.0) <= now:
                over = max(self._lines.get(sites, 0.0), now) + self._taken
                self._lines[sites] = over
                self._links[i, j] = over + self._trip
                return j, at + 1, over + self._trip
        return None, round + len(self._world.members), now
