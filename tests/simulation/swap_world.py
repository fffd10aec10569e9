"""Swappers in virtual time: the real exchange over real shards, and a network that delays and loses, without an agent."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

import optim
import topology
from optim import Kind
from p2p.agent.seat import Seat
from p2p.agent.swapper import Swapper
from p2p.agent.view import View
from p2p.config import ExchangeConfig
from p2p.net.messages import Message
from p2p.report import Metrics
from p2p.state.shards import Shards
from topology import Member

CONFIG = ExchangeConfig(block_bytes=64, message_bytes=256, credit_start=4096)


class Plain:
    """A source over a tensor."""

    in_model = True
    brought = None

    def __init__(self, name: str, kind: Kind, tensor: Tensor) -> None:
        self.name, self.kind, self.tensor = name, kind, tensor
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype

    def read(self) -> Tensor | None:
        return self.tensor

    def create(self) -> Tensor:
        return self.tensor


@dataclass
class Leaving:
    """A message's payload is read when it arrives; until then the buffer is the network's."""

    done: bool = False


class Line:
    """One node's Post: what it sends arrives later, in order, or never."""

    limited = False

    def __init__(self, world: SwapWorld, node: str) -> None:
        self.world, self.node = world, node

    def send(self, node: str, message: Message, payload: memoryview | None = None) -> Leaving | None:
        return self.world.post(self.node, node, message, payload)

    answer = send
    """A route is named by the node that it leads to."""


class SwapWorld:
    """Nodes "0", "1" ..., each with the given sources; `delay(sender, receiver)` in seconds."""

    def __init__(
        self,
        sources: Sequence[Sequence[Plain]],
        delay: Callable[[str, str], float] = lambda sender, receiver: 0.1,
        graph: str = "complete",
        config: ExchangeConfig = CONFIG,
        algorithm: str = "async",
    ) -> None:
        self.now = 0.0
        self.delay = delay
        self.lost: set[int] = set()  # messages under way that a broken connection took along
        self.full: set[str] = set()  # nodes to which nothing can be sent
        self.log: list[tuple[float, str, str, Message]] = []
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._last: dict[tuple[str, str], float] = {}
        self._under_way: dict[int, tuple[str, str, Leaving]] = {}
        self._wakes: dict[str, float] = {}
        self.metrics = Metrics()
        self.nodes: dict[str, Swapper] = {}
        for i, own in enumerate(sources):
            shards = Shards(list(own), block_bytes=config.block_bytes, live=True)
            made = optim.make(algorithm)
            assert isinstance(made, optim.Async)
            line = Line(self, str(i))
            self.nodes[str(i)] = Swapper(shards, made, config, line, self.metrics, 1000)  # type: ignore[arg-type]
        self.graph = topology.make(graph)
        self.view(self.nodes)

    def view(self, members: Sequence[str] | dict[str, Swapper]) -> None:
        view = View(Member(node) for node in members)
        for node in members:
            self.nodes[node].seat(Seat(view, self.graph, node), self.now)

    def pace(self, seconds: float) -> None:
        """All nodes' steps take so long from now on."""
        for node, swapper in self.nodes.items():
            swapper.swaps.pace = seconds
            self.arm(node)

    def at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), call))

    def post(self, sender: str, receiver: str, message: Message, payload: memoryview | None) -> Leaving | None:
        if receiver in self.full:
            return None
        number, sent = next(self._order), Leaving()
        self._under_way[number] = (sender, receiver, sent)
        when = max(self.now + self.delay(sender, receiver), self._last.get((sender, receiver), 0.0))
        self._last[sender, receiver] = when
        self.at(when, lambda: self.arrive(number, sender, receiver, message, payload))
        return sent

    def arrive(self, number: int, sender: str, receiver: str, message: Message, payload: memoryview | None) -> None:
        body = memoryview(bytes(payload)) if payload is not None else None
        if number in self._under_way:
            self._under_way.pop(number)[2].done = True
            self.log.append((self.now, sender, receiver, message))
            self.nodes[receiver].handle(sender, sender, message, body, self.now)
            self.nodes[receiver].tick(self.now)
            self.arm(receiver)

    def break_(self, one: str, other: str) -> None:
        """The connections between two nodes break; what is under way is gone."""
        for number, (sender, receiver, sent) in list(self._under_way.items()):
            if {sender, receiver} == {one, other}:
                sent.done = True
                del self._under_way[number]

    def arm(self, node: str) -> None:
        wake = max(self.nodes[node].wake, self.now)
        if wake < min(self._wakes.get(node, math.inf), math.inf):
            self._wakes[node] = wake
            self.at(wake, lambda: self.tick(node, wake))

    def tick(self, node: str, wake: float) -> None:
        if self._wakes.get(node) == wake:
            del self._wakes[node]
            self.nodes[node].tick(self.now)
            self.arm(node)

    def run(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        """Let so much time pass; `each` is called after every event."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, call = heapq.heappop(self._events)
            call()
            each()
        self.now = end

    def drain(self) -> None:
        """Nothing new is opened; all that is open is answered."""
        for node in self.nodes.values():
            node.close()
        while not all(node.drained for node in self.nodes.values()):
            self.run(10.0)

    def copy(self, node: str, kind: Kind) -> Tensor:
        """What a node's agent holds of one kind."""
        shards = self.nodes[node].shards
        pieces = []
        for block in shards.blocks:
            if block.kind is kind:
                pieces.append(torch.empty(block.elements, dtype=block.dtype))
                shards.read(block, pieces[-1])
        return torch.cat(pieces)


def sources(seed: int, elements: int = 20) -> list[Plain]:
    """A parameter, a momentum and a second moment, float64."""
    rng = random.Random(seed)
    values = [torch.tensor([rng.gauss(0, 1) for _ in range(elements)], dtype=torch.float64) for _ in range(3)]
    kinds = (Kind.PARAMETER, Kind.SIGNED, Kind.NONNEGATIVE)
    return [
        Plain(kind.name.lower(), kind, v.square() if kind is Kind.NONNEGATIVE else v)
        for kind, v in zip(kinds, values, strict=True)
    ]
