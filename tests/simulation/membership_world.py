"""Membership machines in virtual time: a heap of events, a network with latency, loss, stalls, deaths and partitions."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b

from p2p.agent.instructions import Changed, Instruction, Refused, Returned, Send
from p2p.agent.membership import Membership
from p2p.agent.records import LIVE, State, identify
from p2p.config import LAN, MembershipConfig
from p2p.net.messages import Message, News, Phase, Record

EPOCH = 1_700_000_000_000
"""Boot milliseconds at virtual time 0."""


@lru_cache(maxsize=100_000)
def _mark(record: Record) -> bytes:
    return blake2b(repr(replace(record, signature=b"")).encode(), key=record.key, digest_size=64).digest()


def sign(record: Record) -> Record:
    """Stands in for Ed25519, a hundred times faster: whoever calls it may be said to hold the key."""
    return replace(record, signature=_mark(replace(record, signature=b"")))


def verify(record: Record) -> bool:
    return record.signature == _mark(replace(record, signature=b""))


def make_record(index: int, incarnation: int = EPOCH, **changes: object) -> Record:
    """The signed record of the machine with this number."""
    key = blake2b(index.to_bytes(4, "big"), digest_size=32).digest()
    blank = Record(key, f"mem://n{index}:1", f"mem://n{index}:2", incarnation, int(Phase.TRAINING), "", False, b"c" * 16, b"")
    return sign(replace(blank, **changes))


class World:
    """Machines by node id, and everything that can happen to them."""

    def __init__(self, seed: int, config: MembershipConfig = LAN.membership, latency: float = 0.001, loss: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.config, self.latency, self.loss = config, latency, loss
        self.jitter = 1.0  # of the latency, its range
        self.now = 0.0
        self.machines: dict[str, Membership] = {}
        self.sent: Counter[str] = Counter()
        self.changes: list[tuple[float, str, Changed]] = []
        self.refusals: list[tuple[str, Refused]] = []
        self.returns: list[tuple[float, str]] = []  # when a node found that it was away
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._armed: dict[str, float] = {}
        self._mail: dict[str, list[tuple[str, Message]]] = {}  # of the stalled
        self._side: dict[str, int] = {}

    # --- what happens -----------------------------------------------------------------------------------------------

    def add(self, index: int, contact: str | None = None, **record: object) -> str:
        """One machine starts (or starts again), and joins through `contact`."""
        own = make_record(index, **({"incarnation": EPOCH + int(self.now * 1000)} | record))
        node = identify(own.key)
        rng = random.Random(self.rng.getrandbits(64))
        self.machines[node] = Membership(own, sign, verify, self.config, rng, self.now)
        self._mail.pop(node, None)
        if contact is not None:
            host = self.machines[contact]
            self._perform(contact, host.meet(News((own,)), self.now))
            self._perform(node, self.machines[node].meet(host.news(), self.now))
        self._arm(node)
        return node

    def swarm(self, count: int) -> list[str]:
        """So many machines, each joined through the first, and some time to settle."""
        nodes = [self.add(0)]
        for index in range(1, count):
            nodes.append(self.add(index, nodes[0]))
        return nodes

    def flock(self, count: int) -> list[str]:
        """So many machines that know each other from the start."""
        nodes = [self.add(index) for index in range(count)]
        everybody = News(tuple(machine.record for machine in self.machines.values()))
        for node in nodes:
            self._perform(node, self.machines[node].meet(everybody, self.now))
        return nodes

    def kill(self, node: str) -> None:
        del self.machines[node]

    def stall(self, node: str, seconds: float) -> None:
        """It stands still, as with SIGSTOP; what is sent to it waits."""
        self._mail[node] = []
        machine = self.machines[node]
        self.at(self.now + seconds, lambda: self._resume(node, machine))

    def partition(self, *sides: Iterable[str]) -> None:
        """Only nodes of one side hear each other; no sides: all do."""
        self._side = {node: number for number, side in enumerate(sides) for node in side}

    def at(self, when: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, action))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> float:
        """Go on for so long, or until something holds; returns the time it took."""
        began, end = self.now, self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            action()
            if until is not None and until():
                return self.now - began
        self.now = end
        return seconds

    # --- what is seen -----------------------------------------------------------------------------------------------

    def states(self, node: str) -> list[State | None]:
        """How the others hold `node`."""
        others = (machine for other, machine in self.machines.items() if other != node)
        return [machine.members[node].state if node in machine.members else None for machine in others]

    def agreed(self) -> bool:
        """All machines hold exactly the running ones for live, and have the same view."""
        views = {machine.view.digest for machine in self.machines.values()}
        return len(views) == 1 and all(
            {node for node, info in machine.members.items() if info.state in LIVE} == self.machines.keys()
            for machine in self.machines.values()
        )

    def false_deaths(self) -> list[tuple[float, str, Changed]]:
        return [entry for entry in self.changes if entry[2].after is State.DEAD and entry[2].node in self.machines]

    def validate(self) -> None:
        for machine in self.machines.values():
            machine.validate_state()

    # --- inside -----------------------------------------------------------------------------------------------------

    def hint(self, observer: str, node: str, reason: str = "closed") -> None:
        """The observer's connection to `node` closed."""
        self._perform(observer, self.machines[observer].closed(node, reason, self.now))

    def call(self, node: str, instructions: list[Instruction]) -> None:
        """Perform what a direct call to a machine returned."""
        self._perform(node, instructions)

    def _perform(self, node: str, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Send):
                self.sent[node] += 1
                self._transmit(node, instruction.node, instruction.message)
            elif isinstance(instruction, Changed):
                self.changes.append((self.now, node, instruction))
            elif isinstance(instruction, Returned):
                self.returns.append((self.now, node))
            else:
                self.refusals.append((node, instruction))
        self._arm(node)

    def _transmit(self, sender: str, target: str, message: Message) -> None:
        if self.loss and self.rng.random() < self.loss:
            return
        delay = self.latency * (1 + self.jitter * (self.rng.random() - 0.5))
        self.at(self.now + delay, lambda: self._deliver(sender, target, message))

    def _deliver(self, sender: str, target: str, message: Message) -> None:
        if self._side and self._side.get(sender) != self._side.get(target):
            return
        if target in self._mail:
            self._mail[target].append((sender, message))
        elif target in self.machines:
            self._perform(target, self.machines[target].handle(sender, message, self.now))

    def _arm(self, node: str) -> None:
        machine = self.machines[node]
        wake = max(machine.wake, self.now)
        if self._armed.get(node) != wake:
            self._armed[node] = wake
            self.at(wake, lambda: self._tick(node, machine, wake))

    def _tick(self, node: str, machine: Membership, wake: float) -> None:
        if self.machines.get(node) is machine and self._armed.get(node) == wake and node not in self._mail:
            self._armed.pop(node)
            self._perform(node, machine.tick(self.now))

    def _resume(self, node: str, machine: Membership) -> None:
        mail = self._mail.pop(node, [])
        if self.machines.get(node) is machine:
            self._perform(node, machine.tick(self.now))
            for sender, message in mail:
                self._perform(node, machine.handle(sender, message, self.now))
