"""One scenario through real sockets and through the simulated network: the machines say the same, word for word.

Both runs have virtual time, so that nothing needs to be forgiven: over sockets, time stands still while a message is under
way. Of what the machines say, only this is not compared, because it must differ: the addresses in members' records (ports
are the system's choice), and the signatures over them; and buffers, by what they are in memory.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from p2p.agent.exchange import Verdict
from p2p.agent.instructions import Send
from p2p.agent.pusher import Pusher
from p2p.agent.rounds import Mixed
from p2p.agent.swapper import Swapper
from p2p.config import LAN
from p2p.net.messages import News
from p2p.net.transport import Transport
from p2p.net.zeromq import ZmqTransport
from p2p.sim.clock import VirtualLoop
from p2p.sim.compute import Paced
from p2p.sim.node import SimulatedNode
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Drifting

DEADLINE = 20.0
"""Real seconds that a message on loopback may take."""
CONFIG = replace(
    LAN,
    exchange=replace(LAN.exchange, block_bytes=128, message_bytes=256),  # several blocks, several messages
    membership=replace(LAN.membership, sync_interval=4.0),  # a push-pull, with all records
)


class Recorded(SimulatedSwarm):
    """Keeps what each node's machines say, with the time."""

    def __init__(self, nodes: int, **arguments: Any) -> None:
        super().__init__(nodes, **arguments)
        self.said: list[list[str]] = [[] for _ in range(nodes)]

    def entered(self, node: SimulatedNode) -> None:
        super().entered(node)
        exchange = node.agent.exchange
        self._listen(node, node.agent.membership, "tick", "handle")
        if isinstance(exchange, Swapper):
            self._listen(node, exchange.swaps, "tick", "asked")
        else:
            assert isinstance(exchange, Pusher)
            self._listen(node, exchange.rounds, "tick", "finish")

    def _listen(self, node: SimulatedNode, machine: object, *methods: str) -> None:
        for name in methods:
            setattr(machine, name, self._told(node, name, getattr(machine, name)))

    def _told(self, node: SimulatedNode, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def write(instruction: object) -> None:
            self.said[node.index].append(f"{self._loop.time():.9f} {name}: {in_words(instruction)}")

        def each(instructions: Iterable[object]) -> Iterator[object]:
            for instruction in instructions:
                write(instruction)
                yield instruction

        def told(*arguments: Any) -> Any:
            answer = method(*arguments)
            if isinstance(answer, list):
                return list(each(answer))
            if isinstance(answer, Iterator):  # performed one by one
                return each(answer)
            write(answer)
            return answer

        return told


def in_words(instruction: object) -> str:
    """All of an instruction but what must differ."""
    if isinstance(instruction, Send) and isinstance(news := getattr(instruction.message, "news", None), News):
        records = tuple(replace(record, control="", data="", signature=b"") for record in news.records)
        return repr((instruction.node, replace(instruction.message, news=replace(news, records=records))))  # type: ignore[type-var]
    if isinstance(instruction, Mixed):
        parts = [(partner, weight, sorted(blocks)) for partner, weight, blocks in instruction.parts]
        return repr((instruction.plan, parts, instruction.skipped))
    if isinstance(instruction, Verdict):
        return repr((instruction.accepted, instruction.weight, instruction.answer is not None))
    return repr(instruction)


class SocketLoop(VirtualLoop):
    """Virtual time over real sockets: it goes on when there is nothing to do and nothing is `under_way`."""

    def __init__(self, under_way: Callable[[], bool]) -> None:
        super().__init__()
        self._under_way = under_way
        self._selector = selectors.DefaultSelector()

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        self._selector.register(fd, selectors.EVENT_READ, asyncio.Handle(callback, args, self))

    def remove_reader(self, fd: Any) -> bool:
        return self._selector.unregister(fd) is not None

    def close(self) -> None:
        super().close()
        self._selector.close()

    def _advance(self) -> None:
        deadline = time.monotonic() + DEADLINE
        while self._under_way():
            self._ready.extend(key.data for key, _ in self._selector.select(0.05))
            if self._ready:
                return
            assert time.monotonic() < deadline, f"a message was lost, or took more than {DEADLINE} s"
        super()._advance()


class OverSockets(Recorded):
    """The same swarm, over ZeroMQ on loopback."""

    closing = False

    def _clock(self) -> VirtualLoop:
        return SocketLoop(self._under_way)

    def _transport(self, name: str, site: str) -> Transport:
        return ZmqTransport("tcp://127.0.0.1:0")

    def _under_way(self) -> bool:
        posts = [node.agent.post for node in self.nodes]
        return self.closing or sum(post.sent for post in posts) != sum(post.received for post in posts)

    async def _run(self, *arguments: Any) -> None:
        try:
            await super()._run(*arguments)
        finally:
            self.closing = True  # its threads end in real time
            for node in self.nodes:
                await node.agent.transport.close()


@pytest.mark.parametrize(
    ("algorithm", "topology", "words"),
    [("gossip", "ring", "Pushed("), ("async", "one-peer-exponential", "Opened(")],
)
def test_the_machines_say_the_same_over_sockets_and_in_memory(algorithm: str, topology: str, words: str) -> None:
    def run(make: type[Recorded]) -> Recorded:
        swarm = make(
            5,
            seed=3,
            algorithm=algorithm,
            topology=topology,
            workload=Drifting(64, 3),
            compute=Paced(1.0, 0.2, seed=3),
            config=CONFIG,
        )
        swarm.run(steps=8)
        return swarm

    simulated, real = run(Recorded), run(OverSockets)
    assert all(sum(words in line for line in said) > 8 for said in simulated.said)
    for one, other in zip(simulated.said, real.said, strict=True):
        assert one == other
    assert torch.equal(simulated.vectors(), real.vectors())
