"""Work shared out in virtual time: the real lease machines, trainers that only let time pass, deaths, joiners, a ledger."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field

from p2p.agent.instructions import Send
from p2p.agent.leases import Begin, Leases, Wait
from p2p.config import LAN, WorkConfig
from p2p.net.messages import Work
from p2p.sim.clock import Process, VirtualLoop, run

LOOK = 0.05
"""Seconds between two looks of a node that waits for the others at the end."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done: `epochs` epochs of `chunks` chunks of `size` samples, in batches, prefetched or not."""

    chunks: int
    size: int = 16
    batch: int = 32
    epochs: int = 1
    prefetch: int = 0  # batches that are drawn ahead
    seconds: float = 0.01  # per sample


@dataclass
class Ledger:
    """What was done, by whom, and when."""

    samples: Counter[tuple[int, int]] = field(default_factory=Counter)  # (chunk, sample in it) -> times processed
    starts: dict[str, float] = field(default_factory=dict)  # node -> when it had its first chunk
    ends: dict[tuple[str, int], float] = field(default_factory=dict)  # (node, epoch) -> when its first pass ended
    messages: int = 0

    def missing(self, job: Job) -> int:
        """Samples that were never processed."""
        return job.chunks * job.epochs * job.size - len(self.samples)

    def doubled(self) -> int:
        """Chunks of which a sample was processed more than once."""
        return len({chunk for (chunk, _), times in self.samples.items() if times > 1})


class Worker:
    """One node: its machine, and a trainer that takes `seconds(samples)` for a step."""

    def __init__(self, world: WorkWorld, name: str, slow: float) -> None:
        self.name = name
        self.slow = slow
        self.done = False
        self.world = world
        self.process = Process(world.loop, name)
        self.rng = random.Random(f"{world.seed}/{name}")
        job = world.job
        version = int(world.loop.time() * 1000) << 20
        self.leases = Leases(name, 0, job.chunks, job.size, world.config, self.rng, version, world.loop.time())
        self.news = asyncio.Event()
        self._queue: deque[list[int]] = deque()  # [chunk, samples done]
        self._timer: asyncio.TimerHandle | None = None

    async def live(self) -> None:
        """All epochs, and at the end what the dead have left."""
        epochs = self.world.job.epochs
        await self._sync()
        for epoch in range(self.leases.current, epochs):
            await self._pass(epoch)
            self.world.ledger.ends[self.name, epoch] = self.world.loop.time()
        while not self.leases.complete(epochs - 1):
            await asyncio.sleep(LOOK)
            await self._pass(epochs - 1)
        self.done = True

    def perform(self, sends: Sequence[Send]) -> None:
        """Send, and see to it that the machine is looked at when it wants to be."""
        for send in sends:
            assert isinstance(send.message, Work)
            self.world.carry(self, send.node, send.message)
        if self._timer is not None:
            self._timer.cancel()
        wake = self.leases.wake
        self._timer = self.world.loop.call_at(wake, self._tick) if wake < float("inf") else None

    def _tick(self) -> None:
        if self.name in self.world.workers:
            self.perform(self.leases.tick(self.world.loop.time()))

    async def _sync(self) -> None:
        """Hear what is done already, if anybody answers."""
        deadline = self.world.loop.time() + self.world.config.refresh
        self.perform(self.leases.ask(self.world.loop.time()))
        while not self.leases.synced and self.world.loop.time() < deadline:
            await self._news_until(deadline)

    async def _news_until(self, deadline: float) -> None:
        self.news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self.news.wait()

    async def _pass(self, epoch: int) -> None:
        job = self.world.job
        self.leases.begin(epoch, self.world.loop.time())
        more = True
        while more or self._queue:
            while more and sum(job.size - done for _, done in self._queue) < job.batch * (1 + job.prefetch):
                more = await self._draw()
            if self._queue:
                await self._step()

    async def _draw(self) -> bool:
        while isinstance(answer := self.leases.take(self.world.loop.time()), Wait):
            self.perform(())
            await self._news_until(answer.until)
        self.perform(self.leases.tick(self.world.loop.time()))
        if isinstance(answer, Begin):
            self.world.ledger.starts.setdefault(self.name, self.world.loop.time())
            self._queue.append([answer.chunk, 0])
        return isinstance(answer, Begin)

    async def _step(self) -> None:
        job, world = self.world.job, self.world
        samples = min(job.batch, sum(job.size - done for _, done in self._queue))
        await asyncio.sleep(samples * job.seconds * self.slow * world.noise(self.rng))
        finished, left = [], samples
        while left:
            chunk, done = head = self._queue[0]
            part = min(left, job.size - done)
            world.ledger.samples.update((chunk, sample) for sample in range(done, done + part))
            head[1] += part
            left -= part
            if head[1] == job.size:
                finished.append(chunk)
                self._queue.popleft()
        self.leases.progress(samples, finished, world.loop.time())
        self.perform(self.leases.tick(world.loop.time()))


class WorkWorld:
    """Nodes `n0` .. that do one job. What a real membership would say is said after `detection` seconds."""

    def __init__(
        self,
        job: Job,
        nodes: int,
        *,
        seed: int = 0,
        slow: Mapping[str, float] | None = None,
        variation: float = 0.0,
        latency: float = 0.005,
        loss: float = 0.0,
        detection: float = 5.0,
        config: WorkConfig = LAN.work,
    ) -> None:
        self.job = job
        self.seed = seed
        self.config = config
        self.ledger = Ledger()
        self.workers: dict[str, Worker] = {}
        self._nodes = nodes
        self._slow = slow or {}
        self._variation, self._latency, self._loss, self._detection = variation, latency, loss, detection
        self._rng = random.Random(f"{seed}/world")
        self._members: set[str] = set()
        self.loop: VirtualLoop

    def run(
        self,
        kills: Mapping[str, float] | None = None,
        joins: Mapping[str, float] | None = None,
        but: Collection[str] = (),
    ) -> WorkWorld:
        """Until every living node, `but` for these, has seen the last epoch complete. `kills` and `joins`: who, and when."""
        run(self._run(kills or {}, joins or {}, but))
        return self

    def carry(self, sender: Worker, to: str, message: Work) -> None:
        """One message, if it isn't lost."""
        self.ledger.messages += 1
        worker = self.workers.get(to)
        if worker is not None and self._rng.random() >= self._loss:
            delay = self._latency * (0.5 + self._rng.random())
            self.loop.call_later(delay, self._arrive, worker, sender.name, message, context=Context())  # outlives its sender

    def noise(self, rng: random.Random) -> float:
        return 1.0 + rng.uniform(-self._variation, self._variation)

    def kill(self, name: str) -> None:
        self.workers.pop(name).process.kill()
        self.loop.call_later(self._detection * (0.8 + 0.4 * self._rng.random()), self._forget, name)

    async def _run(self, kills: Mapping[str, float], joins: Mapping[str, float], but: Collection[str]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self._add(f"n{index}" for index in range(self._nodes))
        for name, when in kills.items():
            loop.call_at(when, self.kill, name)
        for name, when in joins.items():
            loop.call_at(when, self._add, (name,))
        while not all(worker.done for worker in self.workers.values() if worker.name not in but):
            await asyncio.sleep(LOOK)

    def _add(self, names: Iterable[str]) -> None:
        new = [Worker(self, name, self._slow.get(name, 1.0)) for name in names]
        self.workers.update({worker.name: worker for worker in new})
        self._members.update(worker.name for worker in new)
        self._seat()
        for worker in new:
            worker.process.spawn(worker.live())

    def _forget(self, name: str) -> None:
        self._members.discard(name)
        self._seat()

    def _seat(self) -> None:
        for worker in self.workers.values():
            worker.perform(worker.leases.seat(self._members, self.loop.time()))

    def _arrive(self, worker: Worker, sender: str, message: Work) -> None:
        if worker.name in self.workers:
            worker.perform(worker.leases.handle(sender, message, self.loop.time()))
            worker.news.set()
