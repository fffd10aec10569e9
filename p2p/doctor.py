"""`starlings doctor`: looks at this machine and at the way to a member, before anybody trains."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from p2p import diagnosis
from p2p.diagnosis import Finding, Severity
from p2p.errors import ContractError, JoinError, ListenError, SecretError
from p2p.net.address import outward_host, parse_address
from p2p.net.messages import Status, StatusRequest
from p2p.net.zeromq import ZmqTransport
from p2p.visit import Visit

SMALL, LARGE = 512, 64 * 1024
"""Bytes that fit into one packet anywhere, and bytes that don't."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is intended: the settings of a node that would join, or found a swarm where there is no address."""

    address: str | None = None
    secret: bytes | None = None
    listen: str = "tcp://*:0"
    advertise: str | None = None
    insecure: bool = False
    dial_only: bool = False
    folder: Path = Path("runs")
    nodes: int = 1
    state: int = 0
    """Bytes of the model and the optimizer's moments, where no member can tell."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is: cores that this process may use, threads that a node would compute with, bytes."""

    cores: int
    threads: int
    memory: int
    disk: int


def examine(plan: Plan, machine: Machine | None = None) -> list[Finding]:
    """All findings, in the order in which they were made."""
    machine = machine or this_machine(plan.folder)
    findings, state = asyncio.run(_network(plan))
    return [
        *findings,
        diagnosis.threads(machine.cores, machine.threads, plan.nodes),
        diagnosis.memory(machine.memory, state, plan.nodes),
        diagnosis.disk(str(plan.folder), machine.disk, state),
    ]


def this_machine(folder: Path) -> Machine:
    """Measured now; disk is that of `folder`, or of the nearest one above it that exists."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = int(os.environ.get("OMP_NUM_THREADS") or cores)
    place = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    return Machine(cores, threads, _free_memory(), shutil.disk_usage(place).free)


def _free_memory() -> int:
    """What could be had without swapping; the free pages alone where the system doesn't say."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        return next(int(line.split()[1]) * 1024 for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable"))
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


async def _network(plan: Plan) -> tuple[list[Finding], int]:
    """What the network lets through, and how large the swarm's state is."""
    try:
        transport = ZmqTransport(plan.listen, advertise=plan.advertise, secret=plan.secret, insecure=plan.insecure)
        visit = Visit(transport, plan.secret, plan.address or "")
        await transport.start(visit)
    except (ListenError, SecretError) as error:
        what, _, fix = str(error).partition("; ")
        return [Finding("bind", Severity.ERROR, what, fix or "choose another --listen address or --port")], plan.state
    try:
        if plan.address is not None:
            transport.face(plan.address)
        findings = [Finding("bind", Severity.OK, transport.control)]
        if plan.address is not None:
            findings += [finding async for finding in _way(plan, visit)]
        return findings, visit.state or plan.state
    finally:
        await transport.close()


async def _way(plan: Plan, visit: Visit) -> AsyncIterator[Finding]:
    """The way to the member and back; ends at the first thing without which nothing else can be looked at."""
    try:
        terms, round_trip = await visit.knock()
    except JoinError as error:
        yield _no_entrance(error)
        return
    yield Finding("member", Severity.OK, f"{visit.member} answers: right secret, same protocol, {terms.members} members")
    if not plan.dial_only:
        yield _own_address(visit)
        yield await _called(visit)
    data = terms.record.data
    if not await visit.passes(data, SMALL):
        yield Finding("data", Severity.ERROR, f"{data} can't be reached", "let the port after the control port through, too")
    elif not await visit.passes(data, LARGE):
        yield diagnosis.mtu(SMALL, LARGE)
    else:
        measured = await visit.link(data, round_trip)
        yield diagnosis.link(measured)
        status = await visit.ask(StatusRequest(), Status)
        pace = max((member.pace for member in status.members), default=0.0)
        yield diagnosis.exchange(measured, visit.state, pace)
        yield diagnosis.between(status.spans, visit.state, pace)


def _no_entrance(error: JoinError) -> Finding:
    """Why the member couldn't be talked to."""
    if isinstance(error, SecretError):
        return Finding("secret", Severity.ERROR, str(error), "give the file that the swarm's launcher named: --secret-file")
    if isinstance(error, ContractError):
        return Finding("protocol", Severity.ERROR, str(error), "install the same version of starlings on all machines")
    fix = "check that a node runs there, that the address is its own, and that the firewall lets the port through"
    return Finding("member", Severity.ERROR, str(error), fix)


def _own_address(visit: Visit) -> Finding:
    own, peer = parse_address(visit.transport.control), parse_address(visit.member)
    return diagnosis.advertised(str(own), own.loopback, peer.loopback, outward_host(peer.host))


async def _called(visit: Visit) -> Finding:
    own = visit.transport.control
    return diagnosis.reachable(own, parse_address(own).port, await visit.call_back())
