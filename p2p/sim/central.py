"""What gossip is compared with: one model, trained by nodes that meet in an all-reduce or at a server; under virtual time.

Nodes, step times, lines and faults are those of a `SimulatedSwarm`. Each node computes the gradient of its own batch; the
first exchange also makes all models one (the mean of those at the start). A member that dies holds the others up until its
death is noticed; lines that are slowed or cut do so too. Nothing is lost or spoilt on the way: `disconnect` and `corrupt` find
nothing to act upon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from p2p.net.physics import Host, Underlay
from p2p.sim.clock import Process, VirtualLoop, run
from p2p.sim.compute import Compute
from p2p.sim.faults import Fault, Link, Schedule
from p2p.sim.node import Life
from p2p.sim.watch import Watch
from p2p.sim.workloads import Workload

Gradients = list[Tensor]


class Worker:
    """One node: its model, and what it did."""

    def __init__(self, index: int, model: nn.Module, host: Host, process: Process) -> None:
        self.index = index
        self.model = model
        self.host = host
        self.process = process
        self.life = Life.TRAINING
        self.leaving = False
        self.steps = 0
        self.waited = 0.0  # seconds, for others
        self.seconds: list[float] = []  # of each step
        self.interval = 1.0  # steps between two exchanges

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def lives(self) -> bool:
        return self.life in (Life.TRAINING, Life.DONE)

    @property
    def exchanged(self) -> float:
        """Exchanges so far."""
        return self.steps

    def gradients(self) -> Gradients:
        return [p.grad.clone() for p in self.model.parameters() if p.grad is not None]


class Meeting(Protocol):
    """How workers come to the next model."""

    def entered(self, worker: Worker) -> None:
        """It takes part from now on."""

    async def meet(self, worker: Worker, seconds: float) -> None:
        """It has computed for `seconds`, and goes on once its model is renewed."""

    def gone(self, worker: Worker) -> None:
        """It has done its steps, left, or died."""

    def reopened(self) -> None:
        """A cut has ended."""


class Choice(Protocol):
    """What a name like `all-reduce` stands for."""

    def meeting(self, centre: Central) -> Meeting: ...


class Central:
    """Nodes around one model; `choice` says how they meet. Other arguments are as for `SimulatedSwarm`.

    Args:
        size: Bytes of the model on the lines.
    """

    def __init__(
        self,
        nodes: int,
        choice: Choice,
        *,
        workload: Workload,
        compute: Compute,
        underlay: Underlay,
        size: float,
        faults: Sequence[Fault] = (),
        sites: Sequence[str] = ("",),
    ) -> None:
        self.nodes: list[Worker] = []
        self.workload = workload
        self.size = size
        self.underlay = underlay
        self.sites = tuple(sites)
        self.schedule = Schedule(faults, self, lambda text: None)
        self.model = workload.model(0)
        self.optimizer = workload.optimizer(self.model)
        self.loop: VirtualLoop
        self._meeting = choice.meeting(self)
        self._compute = compute
        self._given = nodes
        self._watch = Watch()
        self._steps: int | None = None

    # --- a run -------------------------------------------------------------------------------------------------------

    def run(
        self,
        *,
        steps: int | None = None,
        seconds: float | None = None,
        beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> Central:
        """As `SimulatedSwarm.run`."""
        self._steps = steps
        run(self._run(seconds, beside))
        return self

    def stop(self) -> None:
        """Let the training end here."""
        self._watch.stop()

    async def _run(self, seconds: float | None, beside: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self._watch.begin(loop)
        for _ in range(self._given):
            self._enter()
        nn.utils.vector_to_parameters(self.vectors().mean(0), self.model.parameters())
        self.schedule.arm()
        for worker in self.nodes:
            self._spawn(worker)
        watcher = asyncio.ensure_future(beside()) if beside else None
        if watcher is not None:
            watcher.add_done_callback(self._watch.ended)
        await self._watch.over(lambda: any(worker.life is Life.TRAINING for worker in self.nodes), seconds)
        if watcher is not None:
            watcher.cancel()
        self._watch.check()

    def _enter(self) -> Worker:
        index = len(self.nodes)
        host = self.underlay.host(f"n{index}", self.sites[index % len(self.sites)])
        worker = Worker(index, self.workload.model(index), host, Process(self.loop, host.name))
        self.nodes.append(worker)
        self._meeting.entered(worker)
        return worker

    def _spawn(self, worker: Worker) -> None:
        worker.process.spawn(self._train(worker)).add_done_callback(self._watch.ended, context=Context())

    async def _train(self, worker: Worker) -> None:
        while not worker.leaving and (self._steps is None or worker.steps < self._steps):
            await self._step(worker)
        worker.life = Life.LEFT if worker.leaving else Life.DONE
        self._meeting.gone(worker)

    async def _step(self, worker: Worker) -> None:
        began = self.loop.time()
        seconds = self._compute.seconds(worker.index, worker.steps)
        end = began + seconds - worker.process.stopped
        while (rest := end + worker.process.stopped - self.loop.time()) > 1e-9:
            await asyncio.sleep(rest)
        self.workload.gradient(worker.index, worker.model)
        computed = self.loop.time()
        await self._meeting.meet(worker, seconds)
        worker.steps += 1
        worker.waited += self.loop.time() - computed
        worker.seconds.append(self.loop.time() - began)

    # --- for meetings, and to look at ---------------------------------------------------------------------------------

    def update(self, gradients: Gradients, share: float) -> None:
        """One step of the optimizer on so large a share of the sum of `gradients`."""
        for p, gradient in zip(self.model.parameters(), gradients, strict=False):
            p.grad = gradient * share
        self.optimizer.step()

    def weights(self) -> Tensor:
        """The one model's parameters, as a vector of their own."""
        with torch.no_grad():
            return nn.utils.parameters_to_vector(self.model.parameters())

    @property
    def living(self) -> list[Worker]:
        """Members that have neither died nor left."""
        return [worker for worker in self.nodes if worker.lives]

    def vectors(self) -> Tensor:
        """The living nodes' parameters, one row each."""
        with torch.no_grad():
            return torch.stack([nn.utils.parameters_to_vector(worker.model.parameters()) for worker in self.living])

    # --- what faults do ----------------------------------------------------------------------------------------------

    def kill(self, node: int) -> bool:
        return self._with(node, lambda it: True, self._kill)

    def stall(self, node: int) -> bool:
        return self._with(node, lambda it: True, lambda it: it.process.stop())

    def resume(self, node: int) -> bool:
        return self._with(node, lambda it: True, lambda it: it.process.resume())

    def leave(self, node: int) -> bool:
        return self._with(node, lambda it: not it.leaving, lambda it: setattr(it, "leaving", True))

    def join(self) -> bool:
        worker = self._enter()
        nn.utils.vector_to_parameters(self.weights(), worker.model.parameters())
        self._spawn(worker)
        return True

    def cut(self, sites: tuple[str, ...]) -> bool:
        self.underlay.cut(frozenset(sites))
        return True

    def heal(self, sites: tuple[str, ...]) -> bool:
        self.underlay.heal(frozenset(sites))
        self._meeting.reopened()
        return True

    def slow(self, link: Link, factor: float) -> bool:
        self.underlay.slow(f"n{link}" if isinstance(link, int) else link, factor)
        return True

    def disconnect(self, node: int) -> bool:
        return False

    def corrupt(self, link: Link, share: float) -> bool:
        return False

    def _with(self, index: int, fits: Callable[[Worker], bool], act: Callable[[Worker], object]) -> bool:
        if index >= len(self.nodes) or not self.nodes[index].lives or not fits(self.nodes[index]):
            return False
        act(self.nodes[index])
        return True

    def _kill(self, worker: Worker) -> None:
        worker.process.kill()
        worker.life = Life.KILLED
        self._meeting.gone(worker)
        self._watch.changed()
