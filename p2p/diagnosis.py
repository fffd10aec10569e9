"""What a checkup's figures mean, and what to do: pure judgements, no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from p2p.net.messages import SpanStatus

MIB = 1024 * 1024
STALE = 3.0
"""Steps that one exchange of the whole model may take; beyond, label-sorted data is learned slowly."""
QUEUED = 1.0
"""Seconds that a message may wait for others: pacing by credit leaves a quarter."""
COPIES = 2
"""Copies of the shared state that a node keeps beside the model: the gossip copy and what trainer and agent last met with."""
BUFFERS = 256 * MIB
"""For messages under way."""
CHECKPOINTS = 3
"""Sizes of the state on disk: the newest, the one before, and the one that is being written."""
LOGS = 100 * MIB


class Severity(IntEnum):
    """Also the exit code of the command."""

    OK = 0
    WARNING = 1
    ERROR = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it stands, and where it isn't well, what to do."""

    check: str
    severity: Severity
    says: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """What was measured to a member: seconds, and bytes a second."""

    round_trip: float
    up: float
    down: float


def threads(cores: int, per_node: int, nodes: int) -> Finding:
    """Compute threads of all nodes on this machine against its cores."""
    total = per_node * nodes
    says = f"{nodes} nodes x {per_node} threads on {cores} cores" if nodes > 1 else f"{per_node} threads on {cores} cores"
    if total <= cores:
        return Finding("threads", Severity.OK, says)
    fix = f"set OMP_NUM_THREADS={max(1, cores // nodes)}: threads that wait for each other's core slow every step"
    if nodes > cores:
        fix += f", and start at most {cores} nodes here"
    return Finding("threads", Severity.WARNING, says, fix)


def disk(folder: str, free: int, state: int) -> Finding:
    """Room for logs and checkpoints."""
    need = LOGS + CHECKPOINTS * state
    says = f"{_bytes(free)} free at {folder}, {_bytes(need)} wanted for logs and checkpoints"
    if free >= need:
        return Finding("disk", Severity.OK, says)
    severity = Severity.ERROR if free < LOGS else Severity.WARNING
    return Finding("disk", severity, says, f"free {_bytes(need - free)} there, or name another place: --run-dir")


def memory(available: int, state: int, nodes: int) -> Finding:
    """Room for what a node keeps beside the model."""
    need = nodes * (COPIES * state + BUFFERS)
    says = f"{_bytes(available)} free, {_bytes(need)} wanted for gossip" + (f" of {nodes} nodes" if nodes > 1 else "")
    if available >= need:
        return Finding("memory", Severity.OK, says)
    return Finding("memory", Severity.ERROR, says, "start fewer nodes here, or train a smaller model")


def advertised(address: str, loopback: bool, peer_loopback: bool, outward: str) -> Finding:
    """Whether others can make anything of the address."""
    if loopback and not peer_loopback:
        fix = f"listen on an address that others reach (--listen 'tcp://*') or state it: --advertise {outward}"
        return Finding("advertised address", Severity.ERROR, f"{address} means this machine on every machine", fix)
    return Finding("advertised address", Severity.OK, address)


def reachable(address: str, port: int, reason: str) -> Finding:
    """Whether the member's call came; `reason` is why not, empty if it did."""
    if not reason:
        return Finding("listener", Severity.OK, f"{address}: the member's call came")
    fix = (
        f"let TCP ports {port} and {port + 1} through the firewall (fix them with --port {port}), forward them and say so "
        "with --advertise, or join with --dial-only"
    )
    return Finding("listener", Severity.ERROR, f"{address}: the member's call didn't come ({reason})", fix)


def link(measured: Link) -> Finding:
    """The bare figures."""
    says = f"round trip {measured.round_trip * 1e3:.1f} ms, up {_bytes(measured.up)}/s, down {_bytes(measured.down)}/s"
    return Finding("link", Severity.OK, says)


def exchange(measured: Link, state: int, step: float) -> Finding:
    """How long the whole model takes over this link against a step, and how many nodes can share the link.

    In every step a node sends its state once to ask and once to answer, and receives as much.
    """
    seconds = 2 * state / min(measured.up, measured.down) + measured.round_trip
    says = f"the model ({_bytes(state)}) takes {seconds:.2g} s both ways"
    if step <= 0:
        return Finding("exchange", Severity.OK, says + "; nobody has measured a step yet")
    bears = int(step / seconds)
    says += f", a step {step:.2g} s: {seconds / step:.1f} steps"
    if seconds <= step:
        return Finding("exchange", Severity.OK, f"{says}; this link bears {bears} nodes before communication dominates")
    fix = "a part of the model travels each step; label the sites (--site), or use int8 where the algorithm takes a codec"
    if seconds > STALE * step:
        return Finding("exchange", Severity.WARNING, says + "; label-sorted data will be learned slowly", fix)
    return Finding("exchange", Severity.WARNING, says + "; this link bears no further node", fix)


def between(spans: Sequence[SpanStatus], state: int, step: float) -> Finding:
    """What members have measured of their links, from site to site: the thinnest, and where messages queue."""
    known = [span for span in spans if span.bandwidth]
    if not known:
        return Finding("swarm", Severity.OK, "no member has measured its links yet")
    thin, full = min(known, key=lambda span: span.bandwidth), max(known, key=lambda span: span.queueing)
    says = f"its thinnest links, from {_way(thin)}, carry {_bytes(thin.bandwidth)}/s"
    if step > 0 and state / thin.bandwidth > STALE * step:
        says += f": the model takes {state / thin.bandwidth / step:.1f} steps"
        return Finding("swarm", Severity.WARNING, says, "spare them: --topology two-level, --codec auto")
    if full.queueing > QUEUED:
        says += f"; from {_way(full)} messages wait {full.queueing:.1f} s"
        return Finding("swarm", Severity.WARNING, says, "keep the line's own queue short: --uplink, a little under its rate")
    return Finding("swarm", Severity.OK, says)


def _way(span: SpanStatus) -> str:
    return f"{span.source or 'one node'} to {span.target or 'another'}"


def mtu(largest: int, failed: int) -> Finding:
    """Small messages came through and large ones didn't."""
    says = f"{largest} bytes come through, {failed} bytes don't: some router drops full packets without saying so"
    fix = "lower the interface's MTU (ip link set dev IFACE mtu 1280), or let ICMP 'fragmentation needed' through"
    return Finding("MTU", Severity.ERROR, says, fix)


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"
