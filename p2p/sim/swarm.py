"""A whole swarm in one process under virtual time: the real agents and algorithms, a simulated network, faults, one seed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import optim
import topology
from optim import Algorithm
from p2p.config import LAN, Config
from p2p.net.memory import SILENCE, Network
from p2p.net.physics import Underlay
from p2p.net.transport import Transport
from p2p.sim.clock import Process, VirtualLoop, run
from p2p.sim.compute import Compute, Paced
from p2p.sim.faults import Fault, Link, Schedule
from p2p.sim.invariants import Ledger
from p2p.sim.journal import Journal, NodeLog
from p2p.sim.node import Life, Setting, SimulatedNode
from p2p.sim.watch import Watch
from p2p.sim.workloads import Averaging, Workload
from topology import Topology

DRAIN = 60.0
"""Seconds that open swaps have at the end of a run."""
ENTRANCES = 3
"""Addresses that a joiner is given."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How good the swarm was at one moment: the mean model's score, the mean of the nodes' scores, how far they were apart."""

    time: float
    average: float
    nodes: float
    distance: float


class SimulatedSwarm:
    """Nodes 0 .. `nodes` - 1 are given to each other at the start; more may join.

    Args:
        seed: With the nodes' numbers, of everything random; pass it to `underlay`, `workload` and `compute` as well.
        underlay: Hosts are named `n0`, `n1` ...; None is a network without delay.
        sites: Dealt to the nodes in turn.
        scale: Payload bytes count so many times, as if the model had another size.
        sample: Seconds between two looks at the models' scores (`samples`); None looks never.
    """

    def __init__(
        self,
        nodes: int,
        *,
        seed: int = 0,
        topology: str | Topology = "one-peer-exponential",
        algorithm: str | Algorithm = "async",
        workload: Workload | None = None,
        compute: Compute | None = None,
        underlay: Underlay | None = None,
        faults: Sequence[Fault] = (),
        sites: Sequence[str] = ("",),
        config: Config = LAN,
        scale: float = 1.0,
        sample: float | None = None,
    ) -> None:
        self.seed = seed
        self.nodes: list[SimulatedNode] = []
        self.journal = Journal()
        self.samples: list[Sample] = []
        self.network = Network(underlay, scale=scale)
        self.schedule = Schedule(faults, self, self._observe)
        self.setting = _setting(
            seed, topology, algorithm, workload or Averaging(seed=seed), compute or Paced(seed=seed), config
        )
        work = self.setting.workload
        swaps = self.setting.algorithm.exchange == "swap"
        self.ledger = None
        if swaps and isinstance(work, Averaging) and 8 * work.size <= config.exchange.block_bytes:
            self.ledger = Ledger(work)  # it knows vectors that travel in one piece
        self._given = nodes
        self._sites = tuple(sites)
        self._sample = sample
        self._steps: int | None = None
        self._watch = Watch()
        self._loop: VirtualLoop

    # --- a run -------------------------------------------------------------------------------------------------------

    def run(
        self,
        *,
        steps: int | None = None,
        seconds: float | None = None,
        quiet: float = 0.0,
        beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> SimulatedSwarm:
        """Train until every living node has done `steps` steps, or for so many virtual seconds, whichever is first.

        `beside` runs as long as the training does, from its first moment; it may look at the swarm, and `stop` it.
        `quiet` seconds without training follow, and open swaps are drained, so that invariants can be looked at.
        Raises the first error of any node, and `Deadlock` if time would stand still.
        """
        self._steps = steps
        try:
            run(self._run(seconds, quiet, beside), self._clock())
        finally:
            gc.unfreeze()
        return self

    def stop(self) -> None:
        """Let the training end here."""
        self._watch.stop()

    async def _run(self, seconds: float | None, quiet: float, beside: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop = loop
        self._watch.begin(loop)
        with _standing():
            await self._found()
        self.schedule.arm()
        for node in self.nodes:
            self._spawn(node, node.live(self._steps))
        watchers = [asyncio.ensure_future(watch()) for watch in (self._sampling if self._sample else None, beside) if watch]
        for watcher in watchers:
            watcher.add_done_callback(self._watch.ended)
        await self._watch.over(self._busy, seconds)
        for watcher in watchers:
            watcher.cancel()
        if quiet:
            await self._calm(quiet)
        self._watch.check()

    async def _found(self) -> None:
        """The nodes that are there from the start."""
        for index in range(self._given):
            node = self._make(index)
            await node.process.spawn(node.agent.open())
        known = [node.record() for node in self.nodes]
        for node in self.nodes:
            await node.process.spawn(node.enter(known))
            self.entered(node)

    def _make(self, index: int) -> SimulatedNode:
        name = f"n{index}"
        site = self._sites[index % len(self._sites)]
        process, log = Process(self._loop, name), NodeLog(self.journal, name)
        node = SimulatedNode(index, site, self.setting, self, self._transport(name, site), process, log)
        self.journal.introduce(node.agent.node, name)
        self.nodes.append(node)
        return node

    def _clock(self) -> VirtualLoop:
        return VirtualLoop()

    def _transport(self, name: str, site: str) -> Transport:
        return self.network.transport(name, site)

    async def _calm(self, quiet: float) -> None:
        """Training stops where it is; the agents go on for a while, and then open no more swaps."""
        for node in self.nodes:
            node.resting = True
        await self._watch.over(self._busy, DRAIN)
        await asyncio.sleep(quiet)
        exchanges = [node.agent.exchange for node in self.living if node.agent.exchange is not None]
        for exchange in exchanges:
            exchange.close()
        deadline = self._loop.time() + DRAIN
        while not all(exchange.drained for exchange in exchanges) and self._loop.time() < deadline:
            await asyncio.sleep(0.1)

    async def _sampling(self) -> None:
        assert self._sample is not None
        while True:
            await asyncio.sleep(self._sample)
            self.samples.append(self.look())

    def _spawn(self, node: SimulatedNode, program: Any) -> None:
        node.process.spawn(program).add_done_callback(self._watch.ended, context=Context())

    def _busy(self) -> bool:
        return any(node.life in (Life.JOINING, Life.TRAINING) for node in self.nodes)

    # --- looking at it -----------------------------------------------------------------------------------------------

    @property
    def underlay(self) -> Underlay:
        """The lines."""
        return self.network.underlay

    @property
    def living(self) -> list[SimulatedNode]:
        """Members that have neither died nor left."""
        return [node for node in self.nodes if node.lives]

    def vectors(self) -> Tensor:
        """The living nodes' parameters, one row each."""
        with torch.no_grad():
            return torch.stack([nn.utils.parameters_to_vector(node.model.parameters()) for node in self.living])

    def distance(self) -> float:
        """Consensus distance: root mean square difference of the living nodes' parameters to their mean."""
        vectors = self.vectors()
        return float((vectors - vectors.mean(0)).square().mean().sqrt())

    def look(self) -> Sample:
        """The scores now."""
        work, average = self.setting.workload, self.setting.workload.model(0)
        nn.utils.vector_to_parameters(self.vectors().mean(0), average.parameters())
        scores = [work.score(node.model) for node in self.living]
        return Sample(self._loop.time(), work.score(average), sum(scores) / len(scores), self.distance())

    def reached(self, score: float) -> float | None:
        """When the mean model was first seen at this score."""
        return next((sample.time for sample in self.samples if sample.average >= score), None)

    def story(self, what: int | str = "", *, block: int | None = None) -> str:
        """What happened to one node (by number), to one block (everywhere, or on one node); or the lines with a word."""
        if block is not None:
            return self._block_story([self.nodes[what]] if isinstance(what, int) else self.nodes, block)
        return self.journal.story(f"n{what}" if isinstance(what, int) else what)

    def _block_story(self, nodes: Sequence[SimulatedNode], block: int) -> str:
        events = [
            (event, node.name) for node in nodes if node.agent.exchange for event in node.agent.exchange.history.story(block)
        ]
        names = {node.agent.node: node.name for node in self.nodes}
        return "\n".join(
            f"{event.time:.6f} {name} block {block} {event.what} {names.get(event.partner, event.partner)}"
            + (f", at a distance of {event.distance:.3g}" if event.distance is not None else "")
            for event, name in sorted(events, key=lambda entry: entry[0].time)
        )

    def _observe(self, text: str) -> None:
        self.journal.write("world", text)

    def names(self, ids: Iterable[str]) -> list[str]:
        """The names that go with node ids."""
        known = {node.agent.node: node.name for node in self.nodes}
        return sorted(known.get(id, id) for id in ids)

    @property
    def parted(self) -> bool:
        """Whether anybody was ever given up while it lived: by a long cut, or in error."""
        ends = {node.name: node.end for node in self.nodes}
        given_up = [line.split() for line in self.journal.lines if " member " in line and " after=dead" in line]
        return any(float(words[0]) < ends[words[3].removeprefix("node=")] for words in given_up)

    # --- what nodes tell ---------------------------------------------------------------------------------------------

    def took(self, node: SimulatedNode, block: int) -> None:
        if self.ledger is not None:
            self.ledger.took(node, block)

    def entered(self, node: SimulatedNode) -> None:
        if self.ledger is not None:
            self.ledger.enter(node)

    def left(self, node: SimulatedNode) -> None:
        self._book_out(node)

    def _book_out(self, node: SimulatedNode) -> None:
        if self.ledger is not None:
            self.ledger.gone(node)
            self._loop.call_later(SILENCE, self.ledger.between, node, self.nodes, context=Context())

    # --- what faults do ----------------------------------------------------------------------------------------------

    def kill(self, node: int) -> bool:
        return self._with(node, lambda it: it.life is not Life.LEFT, self._kill)

    def stall(self, node: int) -> bool:
        return self._with(node, lambda it: it.life is not Life.LEFT and not it.stopped, self._stall)

    def resume(self, node: int) -> bool:
        return self._with(node, lambda it: it.stopped, self._resume)

    def leave(self, node: int) -> bool:
        return self._with(node, lambda it: it.lives and not it.leaving, self._leave)

    def join(self) -> bool:
        doors = [node.agent.transport.control for node in self.living if not node.stopped][:ENTRANCES]
        if doors:
            node = self._make(len(self.nodes))
            self._spawn(node, node.join(doors, self._steps))
        return bool(doors)

    def cut(self, sites: tuple[str, ...]) -> bool:
        self.network.cut(*sites)
        return True

    def heal(self, sites: tuple[str, ...]) -> bool:
        self.network.heal(*sites)
        return True

    def disconnect(self, node: int) -> bool:
        return self._with(node, lambda it: it.life is not Life.LEFT, lambda it: self.network.disconnect(it.name))

    def slow(self, link: Link, factor: float) -> bool:
        self.network.slow(f"n{link}" if isinstance(link, int) else link, factor)
        return True

    def corrupt(self, link: Link, share: float) -> bool:
        self.network.corrupt(f"n{link}" if isinstance(link, int) else link, share)
        return True

    def _with(self, index: int, fits: Callable[[SimulatedNode], bool], act: Callable[[SimulatedNode], None]) -> bool:
        """Act on a node that is there and not dead, if it fits."""
        if index >= len(self.nodes):
            return False
        node = self.nodes[index]
        if node.life in (Life.KILLED, Life.FAILED) or not fits(node):
            return False
        act(node)
        return True

    def _kill(self, node: SimulatedNode) -> None:
        node.process.kill()
        node.life, node.end = Life.KILLED, self._loop.time()
        self.network.crash(node.name)
        self._book_out(node)
        self._watch.changed()

    def _stall(self, node: SimulatedNode) -> None:
        node.process.stop()
        self.network.cut(node.name)

    def _resume(self, node: SimulatedNode) -> None:
        self.network.heal(node.name)
        node.process.resume()

    def _leave(self, node: SimulatedNode) -> None:
        node.leaving = True
        if node.life is Life.DONE:
            self._spawn(node, node.leave())


@contextmanager
def _standing() -> Iterator[None]:
    """What is made inside stays, hundreds of thousands of objects: the collector need not look at them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def _setting(
    seed: int, topo: str | Topology, algorithm: str | Algorithm, workload: Workload, compute: Compute, config: Config
) -> Setting:
    made = topology.make(topo)
    return Setting(seed, made, topology.fingerprint(made), optim.make(algorithm), workload, compute, config)
