"""Limits on whole nodes: what leaves and enters them, whoever asks, and that training doesn't wait for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from p2p.config import LAN, LimitConfig
from p2p.net.memory import MemoryTransport
from p2p.net.physics import Line, Underlay
from p2p.net.transport import Route
from p2p.sim.compute import Paced
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging

RATE, STEP, MODEL = 1e6, 0.1, 500_000
"""One megabyte a second for a model of half a megabyte, and ten steps a second."""
BEGIN, END = 2.0, 7.0

Log = list[tuple[float, str, int]]
"""When, whose, how many bytes of payload."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Log:
    log, send = Log(), MemoryTransport.send

    def watched(self: MemoryTransport, route: Route, header: bytes, payload: memoryview | None = None) -> object:
        found = send(self, route, header, payload)
        if found is not None and payload is not None:
            log.append((asyncio.get_running_loop().time(), self.host.name, len(header) + payload.nbytes))
        return found

    monkeypatch.setattr(MemoryTransport, "send", watched)
    return log


@pytest.fixture
def came(monkeypatch: pytest.MonkeyPatch) -> Log:
    log, deliver = Log(), MemoryTransport.deliver

    def watched(self: MemoryTransport, route: Route, header: bytes, payload: bytes | None) -> None:
        log.append((asyncio.get_running_loop().time(), self.host.name, len(header) + len(payload or b"")))
        deliver(self, route, header, payload)

    monkeypatch.setattr(MemoryTransport, "deliver", watched)
    return log


def swarm(limits: LimitConfig, *sites: str, line: float = 1e9) -> SimulatedSwarm:
    """Four nodes that would exchange five megabytes a second each way."""
    made = SimulatedSwarm(
        4,
        seed=1,
        topology="complete",
        workload=Averaging(MODEL // 8, seed=1),
        compute=Paced(STEP, seed=1),
        underlay=Underlay(1, access=Line(0.002, bandwidth=line)),
        sites=sites or ("",),
        config=replace(LAN, limits=limits, exchange=replace(LAN.exchange, block_bytes=16 * 1024)),
    )
    return made.run(seconds=END)


def seconds(log: Log, names: set[str]) -> list[int]:
    """Bytes in each whole second, and in those between."""
    begins = [BEGIN + k / 4 for k in range(int(4 * (END - BEGIN - 1)))]
    return [sum(n for at, name, n in log if name in names and begin <= at < begin + 1) for begin in begins]


def test_an_uplink_is_used_fully_and_no_further(sent: Log) -> None:
    trained = swarm(LimitConfig(uplink=RATE))
    for node in trained.nodes:
        found = seconds(sent, {node.name})
        assert min(found) > 0.95 * RATE and max(found) < 1.05 * RATE
        assert max(node.seconds) < 1.2 * STEP, "no step waits"


def test_partners_share_an_uplink_evenly_and_probes_pass_it_by() -> None:
    """Three partners each; the line carries little more than the limit, so it is full all the time."""
    trained = swarm(LimitConfig(uplink=RATE), line=1.05 * RATE)
    for node in trained.nodes:
        exchange, membership = node.agent.exchange, node.agent.membership
        assert exchange is not None and membership is not None
        sent = [link.sent for link in exchange.links.values()]
        assert len(sent) == 3 and sum(sent) == pytest.approx(RATE * END, rel=0.05)
        assert min(sent) > 0.25 * sum(sent)
        trips = [trip for info in membership.members.values() for trip in info.round_trips]
        assert len(trips) >= END - 2 and max(trips) < 0.2, "of probes, while the link is full"


def test_what_comes_in_stays_under_a_downlink(came: Log) -> None:
    trained = swarm(LimitConfig(downlink=RATE))
    for node in trained.nodes:
        found = seconds(came, {node.name})
        assert 0.85 * RATE < sum(found) / len(found) < 1.05 * RATE
        assert max(found) < 1.4 * RATE


def test_two_sites_share_what_is_between_them(sent: Log) -> None:
    trained = swarm(LimitConfig(wan=(("eu", "us", RATE),)), "eu", "us")
    eu = [node for node in trained.nodes if node.agent.who.site == "eu"]
    names = {node.name for node in eu}
    assert len(eu) == 2
    assert sum(n for at, name, n in sent if name in names) > 1.5 * RATE * END, "inside there is no limit"
    links = [(trained.names([p])[0], link) for node in eu for p, link in node.agent.exchange.links.items()]  # type: ignore[union-attr]
    assert sum(link.sent for name, link in links if name not in names) == pytest.approx(RATE * END, rel=0.05)
