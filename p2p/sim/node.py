"""One simulated node: a real agent in a process of virtual time, and a trainer with its own model and optimizer."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from hashlib import blake2b
from typing import Protocol

from optim import Algorithm
from optim import spec_of as algorithm_spec
from p2p.agent.agent import Agent
from p2p.agent.participant import Task, Who
from p2p.config import Config
from p2p.errors import JoinError
from p2p.net.keys import Identity, swarm_id
from p2p.net.messages import Contract, Phase, Record
from p2p.net.transport import Transport
from p2p.report import StepReport
from p2p.sim.clock import Process, State
from p2p.sim.compute import Compute
from p2p.sim.journal import NodeLog
from p2p.sim.workloads import Workload
from p2p.state.method import Method
from topology import Topology
from topology import spec_of as topology_spec

SWARM = swarm_id(None, "simulated")


def identity(seed: int, index: int) -> Identity:
    """Of node number `index` in the run with this seed."""
    return Identity.from_seed(blake2b(f"{seed}/{index}".encode(), digest_size=32).digest())


class Life(StrEnum):
    """Where a node is in its life."""

    JOINING = "joining"
    TRAINING = "training"
    DONE = "done"  # its steps are done; its agent goes on
    LEFT = "left"
    KILLED = "killed"
    FAILED = "failed"  # found no way in


@dataclass(frozen=True)
class Setting:
    """What all nodes of a run have in common."""

    seed: int
    topology: Topology
    fingerprint: bytes
    algorithm: Algorithm
    workload: Workload
    compute: Compute
    config: Config


class Registrar(Protocol):
    """Who is told of comings and goings, at the moment when a node's state, or a block of it, counts, or counts no longer."""

    def took(self, node: SimulatedNode, block: int) -> None: ...
    def entered(self, node: SimulatedNode) -> None: ...
    def left(self, node: SimulatedNode) -> None: ...


class SimulatedNode:
    """Node number `index`; everything random in it follows from the setting's seed and its number."""

    def __init__(
        self,
        index: int,
        site: str,
        setting: Setting,
        registrar: Registrar,
        transport: Transport,
        process: Process,
        log: NodeLog,
    ) -> None:
        self.index = index
        self.name = process.name
        self.process = process
        self.life = Life.JOINING
        self.leaving = False
        self.resting = False  # begins no further step
        self.steps = 0
        self.reports: list[StepReport] = []
        self.seconds: list[float] = []  # of each step, computation and waiting together
        self.end = math.inf  # when it died or left
        self.log = log
        self._setting = setting
        self._registrar = registrar
        self.model = setting.workload.model(index)
        self.optimizer = setting.workload.optimizer(self.model)
        self.method = Method(setting.algorithm, self.model, [self.optimizer])
        self.method.criterion = partial(setting.workload.batch_loss, index, self.model)
        self.shards = self.method.shards(setting.config.exchange.block_bytes)
        self.agent = Agent(self._who(site), transport, setting.config, self._rng(), log)
        self.agent.took = lambda block: registrar.took(self, block)

    @property
    def lives(self) -> bool:
        """Whether it is a member that can answer now or, when it resumes, later."""
        return self.life in (Life.TRAINING, Life.DONE)

    @property
    def waited(self) -> float:
        """Seconds that its steps waited for others."""
        return sum(report.wait for report in self.reports)

    @property
    def interval(self) -> float:
        """Steps between two own exchanges of one block, as last reported."""
        return self.reports[-1].mixing_interval if self.reports else 0.0

    @property
    def exchanged(self) -> float:
        """Own exchanges of each block so far."""
        return sum(1 / report.mixing_interval for report in self.reports if report.mixing_interval)

    def record(self) -> Record:
        """What the node says of itself, for those to whom it is given at the start."""
        return self.agent.record(self._task().contract, Phase.TRAINING)

    async def open(self) -> None:
        await self.agent.open()

    async def enter(self, known: Sequence[Record]) -> None:
        """Be there from the start, beside these nodes, which all know of each other: nobody spreads it, nobody asks."""
        self.agent.enter(self._task(), known)
        self.log.open = True

    async def live(self, steps: int | None) -> None:
        """Train to the end, and leave if told to."""
        self.life = Life.TRAINING
        while not (self.leaving or self.resting) and (steps is None or self.steps < steps):
            await self._step()
        self.life = Life.DONE
        if self.leaving:
            await self.leave()

    async def join(self, addresses: Sequence[str], steps: int | None) -> None:
        """Come later, by the real way in, and train."""
        self.log.open = True
        await self.agent.open()
        try:
            door = await self.agent.knock(addresses)
            offer = await self.agent.join(self._task(), door)
        except JoinError as error:
            self.life = Life.FAILED
            self.log.write("failed", error=str(error))
            return
        self.shards.apply()
        self.method.enter()
        self._registrar.entered(self)
        self.agent.ready(offer)
        self.log.write("joined", step=offer.step)
        await self.live(steps)

    async def leave(self) -> None:
        """Say goodbye; its agent is gone then."""
        await self.agent.leave()
        self.life, self.end = Life.LEFT, asyncio.get_running_loop().time()
        self.log.write("left")
        self._registrar.left(self)

    async def _step(self) -> None:
        """What a trainer does: compute (at once, then let the time pass), update, exchange."""
        setting, loop = self._setting, asyncio.get_running_loop()
        began = loop.time()
        await self._compute(setting.compute.seconds(self.index, self.steps))
        setting.workload.gradient(self.index, self.model)
        await self.agent.prepare()
        self.optimizer.step()
        report = await self.agent.step()
        self.steps += 1
        self.reports.append(report)
        self.seconds.append(loop.time() - began)
        self.log.step(report, self.seconds[-1])

    async def _compute(self, seconds: float) -> None:
        """Time in which the process is stopped does not count."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds - self.process.stopped
        while (rest := end + self.process.stopped - loop.time()) > 1e-9:
            await asyncio.sleep(rest)

    # --- inside ---

    def _who(self, site: str) -> Who:
        incarnation = int(asyncio.get_running_loop().time() * 1000) + 1
        return Who(identity(self._setting.seed, self.index), incarnation, SWARM, site)

    def _rng(self) -> random.Random:
        return random.Random(f"{self._setting.seed}/agent/{self.index}")

    def _task(self) -> Task:
        setting, schema = self._setting, self.shards.schema
        contract = Contract(
            schema=schema.fingerprint,
            tensors=schema.hashes,
            optimizer=type(self.optimizer).__name__,
            algorithm=algorithm_spec(setting.algorithm),
            topology=topology_spec(setting.topology),
            fingerprint=setting.fingerprint,
            seed=setting.seed,
        )
        return Task(contract, setting.algorithm, setting.topology, self.method, self.shards)

    @property
    def stopped(self) -> bool:
        return self.process.state is State.STOPPED
