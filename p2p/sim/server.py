"""A parameter server: workers send it their gradients, and get the model back.

The server is a host in the first site, with a line like everybody's, which all share; it computes in no time and does not die.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import dataclass

from torch import Tensor, nn

from p2p.net.lane import Lane, Message
from p2p.net.physics import Host
from p2p.net.transport import Route
from p2p.sim.central import Central, Gradients, Meeting, Worker

PIECES = 8
"""Messages in which a model travels, so that those of several workers share the server's line evenly."""


@dataclass(frozen=True)
class ParameterServer:
    """The choice `parameter-server`.

    Args:
        sync: The server waits for the gradients of all workers and applies their mean; else it applies an n-th of each as it
            comes, and answers at once.
    """

    sync: bool = False

    def meeting(self, centre: Central) -> Meeting:
        return Server(self.sync, centre)


class Line:
    """One way between a worker and the server: whole models, one after the other."""

    def __init__(self, source: Host, target: Host, centre: Central) -> None:
        self.loop: asyncio.AbstractEventLoop = centre.loop
        self.context = Context()
        self._size = centre.size
        self._lane = Lane(centre.underlay.path(source, target), self, 0, False)
        self._left = 0
        self._come: asyncio.Future[None]

    async def send(self) -> None:
        """Until the last byte of one model has come."""
        self._left = PIECES
        self._come = self.loop.create_future()
        for _ in range(PIECES):
            message = Message(b"", None, 1.0)
            message.nbytes = int(self._size / PIECES)
            self._lane.launch(message)
        await self._come

    def deliver(self, route: Route, header: bytes, payload: bytes | None) -> None:
        self._left -= 1
        if not self._left and not self._come.done():
            self._come.set_result(None)

    def resume(self) -> None:
        """A cut has ended, perhaps this line's."""
        if self._lane.path.cut_since is None:
            self._lane.resume()


class Server:
    """Applies gradients; answers with the model as it is then."""

    def __init__(self, sync: bool, centre: Central) -> None:
        self._sync = sync
        self._centre = centre
        self._members: list[Worker] = []
        self._lines: dict[int, tuple[Line, Line]] = {}
        self._gathered: dict[int, Gradients] = {}
        self._round: asyncio.Future[Tensor] | None = None

    def entered(self, worker: Worker) -> None:
        server = self._centre.underlay.host("server", self._centre.sites[0])
        self._lines[worker.index] = Line(worker.host, server, self._centre), Line(server, worker.host, self._centre)
        self._members.append(worker)

    async def meet(self, worker: Worker, seconds: float) -> None:
        up, down = self._lines[worker.index]
        gradients = worker.gradients()
        await up.send()
        weights = await self._all(worker, gradients) if self._sync else self._apply(gradients)
        await down.send()
        nn.utils.vector_to_parameters(weights, worker.model.parameters())

    def gone(self, worker: Worker) -> None:
        """The server sees the connection break."""
        self._members.remove(worker)
        self._gathered.pop(worker.index, None)
        self._check()

    def reopened(self) -> None:
        for line in (line for lines in self._lines.values() for line in lines):
            line.resume()

    def _apply(self, gradients: Gradients) -> Tensor:
        self._centre.update(gradients, 1 / len(self._members))
        return self._centre.weights()

    async def _all(self, worker: Worker, gradients: Gradients) -> Tensor:
        """The model of this round, once all members' gradients are there."""
        if self._round is None:
            self._round = self._centre.loop.create_future()
        waited, self._gathered[worker.index] = self._round, gradients
        self._check()
        return await waited

    def _check(self) -> None:
        if self._round is None or not self._gathered or len(self._gathered) < len(self._members):
            return
        sums = [sum(parts[1:], parts[0]) for parts in zip(*self._gathered.values(), strict=True)]
        done, self._round = self._round, None
        self._gathered.clear()
        done.set_result(self._apply(sums))
