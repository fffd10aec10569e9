"""What a simulated network is made of: hosts, lines between them, and the time that bytes take on the way.

Lines share by start-time fair queueing (Goyal, Vin and Cheng, "Start-time Fair Queuing", 1996): whole messages, served in
the order of the byte count at which each would begin if flows took turns byte by byte. A line with something queued is
never idle, so the transfers over it add up to its bandwidth.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections.abc import Callable, Hashable, Mapping
from contextvars import Context
from dataclasses import dataclass
from itertools import count

Begin = Callable[[float], None]
"""Called when a message's first byte enters the link, with the time at which its last byte will have."""


class Pipe:
    """One direction of a line of `bandwidth` bytes a second; a change of it holds for messages that begin later."""

    __slots__ = ("_begun", "_context", "_ends", "_order", "_queue", "bandwidth", "busy_until")

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = bandwidth
        self.busy_until = 0.0
        self._queue: list[tuple[float, int, float, Begin]] = []
        self._order = count()
        self._begun = 0.0  # tag of the message in service
        self._ends: dict[Hashable, float] = {}  # by flow, the tag at which its last message ends
        self._context = Context()  # nobody's: a link works on while the sender's process is stopped

    def enter(self, flow: Hashable, nbytes: float, begin: Begin) -> None:
        """Take `nbytes` of `flow`, now or in turn; one flow's messages stay in order."""
        loop = asyncio.get_running_loop()
        if not self._queue and self.busy_until <= loop.time():
            self._idle(loop.time())
            self._ends[flow] = nbytes
            self._begin(0.0, nbytes, begin)
            return
        tag = max(self._begun, self._ends.get(flow, 0.0))
        self._ends[flow] = tag + nbytes
        heapq.heappush(self._queue, (tag, next(self._order), nbytes, begin))
        if len(self._queue) == 1:
            loop.call_at(self.busy_until, self._serve, context=self._context)

    def urgent(self, nbytes: float) -> float:
        """Take a small message past the queue, at the cost of what waits; the time at which its last byte has entered."""
        now = asyncio.get_running_loop().time()
        taken = nbytes / self.bandwidth
        self.busy_until = max(self.busy_until, now) + taken
        return now + taken

    def _idle(self, now: float) -> None:
        """Nothing waits and nothing is in service: the shares begin anew."""
        self.busy_until = now
        self._begun = 0.0
        self._ends.clear()

    def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        if self.busy_until <= loop.time():
            tag, _, nbytes, begin = heapq.heappop(self._queue)
            self._begin(tag, nbytes, begin)
        if self._queue:
            loop.call_at(self.busy_until, self._serve, context=self._context)

    def _begin(self, tag: float, nbytes: float, begin: Begin) -> None:
        self._begun = tag
        self.busy_until += nbytes / self.bandwidth
        begin(self.busy_until)


Link = str | tuple[str, str]
"""What a fault names: a host (its access line), or two sites (the line between them)."""


@dataclass(frozen=True, slots=True)
class Line:
    """How far, and how thick."""

    latency: float = 0.0
    """Seconds, one way."""
    jitter: float = 0.0
    """Seconds; each message takes up to so much longer, evenly spread, and never overtakes on its connection."""
    bandwidth: float = math.inf
    """Bytes a second, each way; shared by all that use the line."""


AT_ONCE = Line()


class Wire:
    """A line in use: with its two directions' pipes, and what faults have done to it."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.factor = 1.0
        self.corrupt = 0.0
        self.pipes = (Pipe(line.bandwidth), Pipe(line.bandwidth)) if line.bandwidth < math.inf else None

    def slow(self, factor: float) -> None:
        if self.pipes is None and not self.line.latency + self.line.jitter:
            raise ValueError("a line with neither latency nor a bandwidth can't be slowed")
        self.factor = factor
        for pipe in self.pipes or ():
            pipe.bandwidth = self.line.bandwidth / factor


@dataclass(slots=True, eq=False)
class Host:
    """One machine. Its own `random.Random` decides jitter and corruption of what it sends."""

    name: str
    site: str
    access: Wire
    rng: random.Random

    def within(self, names: frozenset[str]) -> bool:
        return self.name in names or self.site in names


@dataclass(slots=True, eq=False)
class Path:
    """From one host to another: the lines between them, and what they come to."""

    source: Host
    target: Host
    wires: tuple[Wire, ...]
    pipes: tuple[Pipe, ...]
    latency: float = 0.0
    jitter: float = 0.0
    corrupt: float = 0.0
    cut_since: float | None = None
    sent: float = 0.0  # bytes, so far

    def survey(self, cuts: list[frozenset[str]], now: float) -> None:
        """Take in what faults have changed."""
        self.latency = sum([wire.line.latency * wire.factor for wire in self.wires])
        self.jitter = sum([wire.line.jitter * wire.factor for wire in self.wires])
        self.corrupt = 1.0 - math.prod([1.0 - wire.corrupt for wire in self.wires])
        apart = any([self.source.within(cut) != self.target.within(cut) for cut in cuts])
        self.cut_since = (now if self.cut_since is None else self.cut_since) if apart else None


class Underlay:
    """Hosts in sites, the lines between them, and what faults do to those.

    Args:
        seed: Of each host's randomness, together with the host's name.
        access: The line from a host to its site; `hosts` gives single ones another.
        inside: Between two hosts of one site; unshared, so its bandwidth is infinite (`access` has a bandwidth).
        between: Between two sites, shared by their hosts; `pairs` gives single pairs, in sorted order, another.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        access: Line = AT_ONCE,
        inside: Line = AT_ONCE,
        between: Line = AT_ONCE,
        hosts: Mapping[str, Line] | None = None,
        pairs: Mapping[tuple[str, str], Line] | None = None,
    ) -> None:
        if inside.bandwidth < math.inf:
            raise ValueError("hosts of one site share nothing but their access lines: give `access` the bandwidth")
        self._seed = seed
        self._access, self._inside, self._between = access, Wire(inside), between
        self._access_of, self._between_of = dict(hosts or {}), dict(pairs or {})
        self._hosts: dict[str, Host] = {}
        self._sites: dict[tuple[str, str], Wire] = {}
        self._paths: dict[tuple[str, str], Path] = {}
        self._cuts: list[frozenset[str]] = []

    def host(self, name: str, site: str) -> Host:
        """The host of that name, put into `site` when first named."""
        if name not in self._hosts:
            access = Wire(self._access_of.get(name, self._access))
            self._hosts[name] = Host(name, site, access, random.Random(f"{self._seed}/{name}"))
        return self._hosts[name]

    def path(self, source: Host, target: Host) -> Path:
        key = (source.name, target.name)
        if key not in self._paths:
            wires, pipes = self._route(source, target)
            self._paths[key] = Path(source, target, wires, pipes)
            self._paths[key].survey(self._cuts, _now())
        return self._paths[key]

    def cut(self, names: frozenset[str]) -> None:
        """Nothing passes between the named hosts and sites, and all others."""
        self._cuts.append(names)
        self._survey()

    def heal(self, names: frozenset[str]) -> None:
        self._cuts.remove(names)
        self._survey()

    def slow(self, link: Link, factor: float) -> None:
        self._wire(link).slow(factor)
        self._survey()

    def corrupt(self, link: Link, share: float) -> None:
        self._wire(link).corrupt = share
        self._survey()

    def traffic(self) -> tuple[float, float]:
        """Bytes sent so far: between the hosts of one site, and between sites."""
        inside = between = 0.0
        for path in self._paths.values():
            if path.source.site == path.target.site:
                inside += path.sent
            else:
                between += path.sent
        return inside, between

    def _survey(self) -> None:
        now = _now()
        for path in self._paths.values():
            path.survey(self._cuts, now)

    def _route(self, source: Host, target: Host) -> tuple[tuple[Wire, ...], tuple[Pipe, ...]]:
        """The lines passed, and the pipes of those that are not infinitely thick."""
        if source is target:
            return (), ()
        if source.site == target.site:
            middle, down = self._inside, 0
        else:
            middle, down = self._site_wire(source.site, target.site), int(source.site > target.site)
        passed = ((source.access, 0), (middle, down), (target.access, 1))
        return tuple(wire for wire, _ in passed), tuple(wire.pipes[way] for wire, way in passed if wire.pipes)

    def _site_wire(self, one: str, other: str) -> Wire:
        key = (min(one, other), max(one, other))
        if key not in self._sites:
            self._sites[key] = Wire(self._between_of.get(key, self._between))
        return self._sites[key]

    def _wire(self, link: Link) -> Wire:
        if isinstance(link, str):
            return self._hosts[link].access
        return self._site_wire(*link)


def _now() -> float:
    return asyncio.get_running_loop().time()
