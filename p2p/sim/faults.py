"""Faults as data: what strikes whom, when, for how long; a schedule strikes them and keeps account of which did.

Nodes are numbers in the order in which they joined, sites are names, times are virtual seconds from the start of the run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Link = int | tuple[str, str]
"""A node (its access line), or two sites (the line between them)."""


class World(Protocol):
    """What faults act upon. Each call says whether it found something to act upon."""

    def kill(self, node: int) -> bool: ...
    def stall(self, node: int) -> bool: ...
    def resume(self, node: int) -> bool: ...
    def cut(self, sites: tuple[str, ...]) -> bool: ...
    def heal(self, sites: tuple[str, ...]) -> bool: ...
    def disconnect(self, node: int) -> bool: ...
    def slow(self, link: Link, factor: float) -> bool: ...
    def corrupt(self, link: Link, share: float) -> bool: ...
    def join(self) -> bool: ...
    def leave(self, node: int) -> bool: ...


class Fault(Protocol):
    """Strikes at `at`."""

    @property
    def at(self) -> float: ...
    def strike(self, world: World) -> bool: ...


@runtime_checkable
class Passing(Protocol):
    """A fault that ends after `for_` seconds."""

    @property
    def for_(self) -> float: ...
    def lift(self, world: World) -> bool: ...


@dataclass(frozen=True, slots=True)
class Kill:
    """As by SIGKILL."""

    node: int
    at: float

    def strike(self, world: World) -> bool:
        return world.kill(self.node)


@dataclass(frozen=True, slots=True)
class Stall:
    """As by SIGSTOP, and SIGCONT `for_` seconds later: agent and trainer stand still."""

    node: int
    at: float
    for_: float

    def strike(self, world: World) -> bool:
        return world.stall(self.node)

    def lift(self, world: World) -> bool:
        return world.resume(self.node)


@dataclass(frozen=True, slots=True)
class Cut:
    """Nothing passes between the named sites and all others."""

    sites: tuple[str, ...]
    at: float
    for_: float

    def strike(self, world: World) -> bool:
        return world.cut(self.sites)

    def lift(self, world: World) -> bool:
        return world.heal(self.sites)


@dataclass(frozen=True, slots=True)
class Disconnect:
    """All connections of a node break, and what is under way on them is lost; they are dialled again."""

    node: int
    at: float

    def strike(self, world: World) -> bool:
        return world.disconnect(self.node)


@dataclass(frozen=True, slots=True)
class Slow:
    """A line's latency multiplied and its bandwidth divided, to the end of the run."""

    link: Link
    factor: float
    at: float = 0.0

    def strike(self, world: World) -> bool:
        return world.slow(self.link, self.factor)


@dataclass(frozen=True, slots=True)
class Corrupt:
    """One bit flipped in a share (0 to 1) of the messages over a line, to the end of the run."""

    link: Link
    share: float
    at: float = 0.0

    def strike(self, world: World) -> bool:
        return world.corrupt(self.link, self.share)


@dataclass(frozen=True, slots=True)
class Join:
    """One more node, with the next number."""

    at: float

    def strike(self, world: World) -> bool:
        return world.join()


@dataclass(frozen=True, slots=True)
class Leave:
    """The node ends its training and leaves properly."""

    node: int
    at: float

    def strike(self, world: World) -> bool:
        return world.leave(self.node)


class Schedule:
    """Strikes each fault when it is due. `observe` is told what happened, in words."""

    def __init__(self, faults: Sequence[Fault], world: World, observe: Callable[[str], None]) -> None:
        self.faults = tuple(faults)
        self.fired: list[Fault] = []
        self._world = world
        self._observe = observe

    def arm(self) -> None:
        """Set the timers; on the running loop, times count from now."""
        loop = asyncio.get_running_loop()
        for fault in sorted(self.faults, key=lambda fault: fault.at):
            loop.call_later(fault.at, self._strike, fault)

    def assert_fired(self) -> None:
        """AssertionError, naming them, if any fault has not struck (yet), or found nothing to act upon."""
        silent = [fault for fault in self.faults if fault not in self.fired]
        if silent:
            raise AssertionError(f"{len(silent)} of {len(self.faults)} faults did not fire: {silent}")

    def _strike(self, fault: Fault) -> None:
        struck = fault.strike(self._world)
        self._observe(f"{fault}" if struck else f"{fault} found nothing to act upon")
        if struck:
            self.fired.append(fault)
            if isinstance(fault, Passing):
                asyncio.get_running_loop().call_later(fault.for_, self._lift, fault)

    def _lift(self, fault: Passing) -> None:
        if fault.lift(self._world):
            self._observe(f"{fault} is over")


def draw(rng: random.Random, nodes: int, sites: Sequence[str], until: float) -> list[Fault]:
    """A random schedule for `nodes` nodes: at most a third of them die or leave, all stalls and cuts end in time."""
    order = rng.sample(range(nodes), nodes)
    gone, rest = order[: rng.randint(0, nodes // 3)], order[nodes // 3 :]
    faults: list[Fault] = [rng.choice((Kill, Leave))(node, rng.uniform(0.1, 0.6) * until) for node in gone]
    faults += [Stall(node, rng.uniform(0.1, 0.5) * until, rng.uniform(0.5, 6.0)) for node in rest[: rng.randint(0, 3)]]
    faults += [Disconnect(node, rng.uniform(0.1, 0.6) * until) for node in rest for _ in range(rng.randint(0, 2))]
    faults += [Slow(node, rng.uniform(2.0, 10.0), rng.uniform(0.0, 0.3) * until) for node in rest[: rng.randint(0, 2)]]
    faults += [Corrupt(node, rng.uniform(0.001, 0.05), rng.uniform(0.0, 0.3) * until) for node in rest[: rng.randint(0, 1)]]
    faults += [Join(rng.uniform(0.1, 0.5) * until) for _ in range(rng.randint(0, 2))]
    if len(sites) > 1 and rng.random() < 0.5:
        faults.append(Cut((rng.choice(list(sites)),), rng.uniform(0.1, 0.4) * until, rng.uniform(1.0, 15.0)))
    return sorted(faults, key=lambda fault: fault.at)
