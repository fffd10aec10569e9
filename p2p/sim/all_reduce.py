"""Synchronous data parallelism by ring all-reduce, with its barrier: what `torch.distributed` does with equal machines.

Gradients are reduced in buckets while the backward pass still computes the next ones. The ring leads through one site after
the other, so each line between two sites carries the model once each way. A dead member stops everybody until it is noticed.
"""

from __future__ import annotations

import asyncio
import math
from contextvars import Context
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from p2p.net.physics import Path
from p2p.sim import ring
from p2p.sim.central import Central, Gradients, Meeting, Worker
from p2p.sim.node import Life
from topology import SpecError

BUCKETS_MAX = 64


@dataclass(frozen=True)
class AllReduce:
    """The choice `all-reduce`.

    Args:
        backward: Share of a step, at its end, in which gradients become ready, bucket by bucket.
        bucket: Bytes of one (64 buckets at most).
        timeout: Seconds until a dead member is left out.
    """

    backward: float = 0.6
    bucket: float = 25e6
    timeout: float = 30.0

    def __post_init__(self) -> None:
        if not (0 <= self.backward <= 1 and self.bucket > 0 and 0 <= self.timeout < math.inf):
            raise SpecError(
                "all-reduce: backward is a share from 0 to 1, bucket a number of bytes, timeout seconds from 0; "
                f"not {self.backward:g}, {self.bucket:g} and {self.timeout:g}"
            )

    def meeting(self, centre: Central) -> Meeting:
        return Barrier(self, centre)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A worker at the barrier: what it brought, when its computation ended, how long it took, and what lets it go on."""

    worker: Worker
    gradients: Gradients
    ended: float
    seconds: float
    go: asyncio.Future[None]


class Barrier:
    """Nobody goes on before all members have come."""

    def __init__(self, choice: AllReduce, centre: Central) -> None:
        self._choice = choice
        self._centre = centre
        self._members: list[Worker] = []
        self._arrived: dict[int, Arrival] = {}
        self._begin = -math.inf  # no ring that waits begins sooner

    def entered(self, worker: Worker) -> None:
        self._members.append(worker)
        self._members.sort(key=lambda member: (member.host.site, member.index))

    async def meet(self, worker: Worker, seconds: float) -> None:
        loop = self._centre.loop
        go: asyncio.Future[None] = loop.create_future()
        self._arrived[worker.index] = Arrival(worker, worker.gradients(), loop.time(), seconds, go)
        self._check()
        await go

    def gone(self, worker: Worker) -> None:
        """Who ends properly is left out at once, a dead one when it is noticed."""
        if worker.life is Life.KILLED:
            self._centre.loop.call_later(self._choice.timeout, self._leave_out, worker, context=Context())
        else:
            self._leave_out(worker)

    def reopened(self) -> None:
        self._begin = self._centre.loop.time()
        self._check()

    def _leave_out(self, worker: Worker) -> None:
        self._begin = self._centre.loop.time()
        self._members.remove(worker)
        self._arrived.pop(worker.index, None)
        self._check()

    def _check(self) -> None:
        """If all have come and all lines are open: reduce, and say when each goes on."""
        edges = self._edges()
        if not self._arrived or len(self._arrived) < len(self._members) or any(edge.cut_since is not None for edge in edges):
            return
        arrivals = [self._arrived.pop(member.index) for member in self._members]
        self._reduce(arrivals)
        loop, weights = self._centre.loop, self._centre.weights()
        for arrival, when in zip(arrivals, self._times(arrivals, edges), strict=True):
            loop.call_at(max(when, loop.time()), self._release, arrival, weights, context=Context())

    def _release(self, arrival: Arrival, weights: Tensor) -> None:
        nn.utils.vector_to_parameters(weights, arrival.worker.model.parameters())
        if not arrival.go.done():
            arrival.go.set_result(None)

    def _reduce(self, arrivals: list[Arrival]) -> None:
        """The mean of all gradients, applied once."""
        sums = [sum(parts[1:], parts[0]) for parts in zip(*(arrival.gradients for arrival in arrivals), strict=True)]
        self._centre.update(sums, 1 / len(arrivals))

    def _edges(self) -> list[Path]:
        """From each member to the next one."""
        hosts = [member.host for member in self._members]
        return [self._centre.underlay.path(a, b) for a, b in zip(hosts, hosts[1:] + hosts[:1], strict=True) if a is not b]

    def _times(self, arrivals: list[Arrival], edges: list[Path]) -> list[float]:
        """When each member has the result. The bytes are booked on the lines."""
        if not edges:
            return [arrival.ended for arrival in arrivals]
        buckets = min(BUCKETS_MAX, math.ceil(self._centre.size / self._choice.bucket)) if self._choice.backward else 1
        ends = np.array([arrival.ended for arrival in arrivals])
        backward = self._choice.backward * np.array([arrival.seconds for arrival in arrivals])
        ready = [np.maximum(ends - backward * (1 - (bucket + 1) / buckets), self._begin) for bucket in range(buckets)]
        bandwidth = np.array([min((pipe.bandwidth for pipe in edge.pipes), default=math.inf) for edge in edges])
        latency = np.array([edge.latency for edge in edges])
        for edge in edges:
            edge.sent += 2 * (len(edges) - 1) / len(edges) * self._centre.size
        times: list[float] = ring.finish(ready, self._centre.size / buckets, bandwidth, latency).tolist()
        return times
