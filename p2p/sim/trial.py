"""One scenario, run and watched; and several, compared.

    from p2p.sim.reading import scenarios
    from p2p.sim.trial import simulate

    for scenario in scenarios({"nodes": 16, "topology": ["ring", "base"], "until": "loss=0.1,time=10min"}):
        print(simulate(scenario).as_dict())

The agents and algorithms are the real ones; the network, the clock and the length of a step are not.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

import optim
import topology
from optim import compatibility
from p2p.agent.coding import Pushing, Rule
from p2p.errors import ConfigError
from p2p.report import finite
from p2p.sim.all_reduce import AllReduce
from p2p.sim.central import Central, Choice
from p2p.sim.scenario import STEPS_MAX, Scenario
from p2p.sim.server import ParameterServer
from p2p.sim.swarm import SimulatedSwarm
from topology.specs import build

CHOICES: dict[str, type[Choice]] = {"all-reduce": AllReduce, "parameter-server": ParameterServer}
LOOKS = 400
"""Looks at a swarm after which only every second one is kept, and the next come half as often."""


@dataclass(frozen=True, slots=True)
class Look:
    """The swarm at one moment. `loss` and `accuracy` are the mean model's, `distance` is the nodes' to it, root mean square."""

    time: float
    steps: float  # of the median node
    loss: float
    accuracy: float | None
    distance: float


@dataclass(frozen=True)
class Result:
    """What came of one run; whatever it had come to if it was stopped. Seconds are virtual, bytes those of the real model."""

    scenario: Scenario
    seconds: float
    reached: float | None
    """Seconds until the target was first seen; None if it never was, or there is none."""
    steps: tuple[int, ...]
    """Of each node, in the order of their numbers."""
    waiting: float
    """Share of the steps' time that was spent waiting for others."""
    inside: float
    """Bytes between nodes of one site."""
    between: float
    """Bytes between sites."""
    looks: tuple[Look, ...]
    faults: tuple[str, ...]
    """Those that struck."""
    interval: float
    """Steps between two exchanges of one piece of the model, median over the nodes' last steps; above 3, sorted data is
    learned slowly."""
    swaps: float
    """Own exchanges of each piece a second, mean over the nodes."""
    complete: bool = True
    """False if it was stopped before its end."""

    @property
    def last(self) -> Look:
        return self.looks[-1]

    @property
    def contribution(self) -> tuple[float, ...]:
        """Each node's share of all steps: of the updates that the swarm's mean is made of."""
        return tuple(steps / max(1, sum(self.steps)) for steps in self.steps)

    @property
    def rate(self) -> float:
        """Steps of the median node a second."""
        return statistics.median(self.steps) / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN: null stands for it."""
        return {name: finite(value) for name, value in self._fields().items()}

    def _fields(self) -> dict[str, object]:
        return {
            "choice": self.scenario.choice,
            "algorithm": self.scenario.algorithm,
            "topology": self.scenario.topology,
            "codec": self.scenario.codec,
            "seed": self.scenario.seed,
            "complete": self.complete,
            "time_to_target": self.reached,
            "seconds": self.seconds,
            "steps": list(self.steps),
            "steps_per_second": self.rate,
            "waiting": self.waiting,
            "mixing_interval": self.interval,
            "exchanges_per_second": self.swaps,
            "bytes": {"lan": self.inside, "wan": self.between},
            "loss": self.last.loss,
            "accuracy": self.last.accuracy,
            "distance": self.last.distance,
            "contribution": list(self.contribution),
            "faults": list(self.faults),
            "looks": [asdict(look) for look in self.looks],
        }


Watcher = Callable[[Look], bool]
"""Shown each look as it is taken; True lets the run end there."""


def check(scenario: Scenario) -> None:
    """Raises ConfigError for names that nobody knows, and for an algorithm and a topology that don't go together."""
    try:
        if scenario.central:
            _choice(scenario)
            return
        algorithm, graph = optim.make(scenario.algorithm), topology.make(scenario.topology)
        if reason := graph.refuses(scenario.nodes):
            raise ConfigError(f"topology: {reason}")
        compatibility.check(algorithm, graph, scenario.nodes)
        (Rule.parse if algorithm.exchange == "swap" else Pushing)(scenario.codec)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def simulate(scenario: Scenario, watcher: Watcher = lambda look: False) -> Result:
    """Run it to its end, or until the watcher has seen enough. Raises ConfigError as `check` does."""
    check(scenario)
    world = _world(scenario)
    watch = Watch(scenario, world, watcher)
    until = scenario.until
    steps = until.steps or (None if until.time else STEPS_MAX)
    with _one_thread():
        world.run(steps=steps, seconds=until.time, beside=watch.run)
    return watch.result()


class Watch:
    """Looks at a world every step time, until it has reached its target or the watcher has seen enough."""

    def __init__(self, scenario: Scenario, world: SimulatedSwarm | Central, watcher: Watcher) -> None:
        self._scenario = scenario
        self._world = world
        self._watcher = watcher
        self._work = scenario.work()
        self._mean = self._work.model(0)
        self._looks: list[Look] = []
        self._first = 0.0  # distance at the start
        self._reached: float | None = None
        self._stopped = False

    async def run(self) -> None:
        pause = self._scenario.step
        try:
            while not self._enough(self._look()):
                if len(self._looks) > LOOKS:
                    self._looks, pause = self._looks[::2], 2 * pause
                await asyncio.sleep(pause)
            self._world.stop()
        finally:
            if self._looks[-1].time < asyncio.get_running_loop().time():
                self._enough(self._look())

    def _enough(self, look: Look) -> bool:
        until = self._scenario.until
        self._looks.append(look)
        if until.target and self._reached is None and self._meets(look):
            self._reached = look.time
        self._stopped = self._watcher(look)
        return self._stopped or self._reached is not None

    def _meets(self, look: Look) -> bool:
        until = self._scenario.until
        return (until.loss is not None and look.loss <= until.loss) or (
            until.accuracy is not None and look.accuracy is not None and look.accuracy >= until.accuracy
        )

    def _look(self) -> Look:
        vectors = self._world.vectors()
        mean = vectors.mean(0)
        distance = float((vectors - mean).square().mean().sqrt())
        self._first = self._first or distance
        nn.utils.vector_to_parameters(mean, self._mean.parameters())
        loss = self._work.loss(self._mean)
        return Look(
            asyncio.get_running_loop().time(),
            statistics.median(node.steps for node in self._world.nodes),
            distance / (self._first or 1.0) if loss is None else loss,
            self._work.score(self._mean) if self._scenario.workload == "digits" else None,
            distance,
        )

    def result(self) -> Result:
        nodes, seconds = self._world.nodes, sum(sum(node.seconds) for node in self._world.nodes)
        inside, between = self._world.underlay.traffic()
        return Result(
            scenario=self._scenario,
            seconds=self._looks[-1].time,
            reached=self._reached,
            steps=tuple(node.steps for node in nodes),
            waiting=sum(node.waited for node in nodes) / seconds if seconds else 0.0,
            inside=inside,
            between=between,
            looks=tuple(self._looks),
            faults=tuple(map(str, self._world.schedule.fired)),
            interval=statistics.median(node.interval for node in nodes),
            swaps=statistics.mean(node.exchanged for node in nodes) / (self._looks[-1].time or 1.0),
            complete=not self._stopped,
        )


def _world(scenario: Scenario) -> SimulatedSwarm | Central:
    work = scenario.work()
    parameters = list(work.model(0).parameters())
    nbytes = sum(p.nbytes for p in parameters)
    common: dict[str, Any] = {
        "workload": work,
        "compute": scenario.compute(),
        "underlay": scenario.underlay(),
        "faults": scenario.faults,
        "sites": scenario.site_names,
    }
    if scenario.central:
        return Central(scenario.nodes, _choice(scenario), size=scenario.model, **common)
    return SimulatedSwarm(
        scenario.nodes,
        seed=scenario.seed,
        topology=scenario.topology,
        algorithm=scenario.algorithm,
        config=scenario.config(nbytes),
        scale=scenario.scale(sum(p.numel() for p in parameters), parameters[0].dtype),
        **common,
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small tensors are slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _choice(scenario: Scenario) -> Choice:
    head, _, parameters = scenario.algorithm.partition(":")
    return build(CHOICES[head], parameters, scenario.algorithm)
