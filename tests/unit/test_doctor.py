"""The doctor in prepared situations: each verdict, and its fix, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import p2p
from p2p import cli, doctor, visit
from p2p.config import TEST
from p2p.diagnosis import Finding, Severity
from p2p.doctor import Machine, Plan, examine
from p2p.net import keys
from p2p.net.transport import Route
from p2p.net.zeromq import ZmqTransport

SECRET, OTHER = bytes(range(32)), bytes(range(1, 33))
WELL = Machine(cores=8, threads=4, memory=8 << 30, disk=8 << 30)
OK, WARNING, ERROR = Severity


@pytest.fixture
def member() -> Iterator[str]:
    """The address of a node that is in a swarm of its own."""
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with p2p.join(model, optimizer, secret=SECRET, listen="tcp://127.0.0.1:0", config=TEST) as node:
        yield node.address


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visit, "MEASURING", 0.05)
    monkeypatch.setattr(visit, "ANSWER", 3.0)


def plan(address: str | None = None, **changes: object) -> Plan:
    return replace(Plan(address, SECRET, "tcp://127.0.0.1:0", folder=Path("/run-folder")), **changes)


def verdict(findings: list[Finding], check: str) -> Finding:
    return next(finding for finding in findings if finding.check == check)


def worst(findings: list[Finding]) -> Severity:
    for finding in findings:
        assert bool(finding.fix) is (finding.severity is not OK), finding
    return max(finding.severity for finding in findings)


def test_all_well(member: str) -> None:
    findings = examine(plan(member), WELL)
    assert [finding.check for finding in findings] == [
        "bind", "member", "advertised address", "listener", "link", "exchange", "swarm", "threads", "memory", "disk",
    ]  # fmt: skip
    assert worst(findings) is OK
    assert "right secret, same protocol, 1 members" in verdict(findings, "member").says
    assert "the model (16.6 kB)" in verdict(findings, "exchange").says  # 64 x 64 + 64 floats


def test_wrong_secret(member: str) -> None:
    findings = examine(plan(member, secret=OTHER), WELL)
    found = verdict(findings, "secret")
    assert found.severity is worst(findings) is ERROR
    assert "wrong secret" in found.says
    assert "--secret-file" in found.fix


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = verdict(examine(plan(f"tcp://127.0.0.1:{port}"), WELL), "member")
    assert found.severity is ERROR
    assert "refused" in found.says
    assert "firewall" in found.fix


def test_other_protocol_version() -> None:
    with speaking(lambda header: bytes((0x97, 99)) + header[2:]) as address:
        found = verdict(examine(plan(address), WELL), "protocol")
    assert found.severity is ERROR
    assert "version 99; ours is 1" in found.says
    assert "same version of starlings" in found.fix


def test_firewalled_listener(member: str) -> None:
    """What is advertised leads to a port where nothing answers, as behind a firewall."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)  # takes the connection, and never a word
        port = deaf.getsockname()[1]
        found = verdict(examine(plan(member, advertise=f"tcp://127.0.0.1:{port}"), WELL), "listener")
    assert found.severity is ERROR
    assert "nothing arrived" in found.says
    assert f"ports {port} and {port + 1}" in found.fix and "--dial-only" in found.fix


def test_dial_only_needs_no_listener(member: str) -> None:
    findings = examine(plan(member, dial_only=True, advertise="tcp://127.0.0.1:1"), WELL)
    assert "listener" not in [finding.check for finding in findings]
    assert worst(findings) is OK


def test_loopback_advertised(member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    far = doctor.parse_address
    monkeypatch.setattr(doctor, "parse_address", lambda text: far("tcp://192.0.2.7:7000") if text == member else far(text))
    found = verdict(examine(plan(member), WELL), "advertised address")
    assert found.severity is ERROR
    assert "--advertise" in found.fix


def test_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        findings = examine(plan(listen=f"tcp://127.0.0.1:{taken.getsockname()[1]}"), WELL)
    assert verdict(findings, "bind").severity is worst(findings) is ERROR
    assert "in use" in verdict(findings, "bind").says


def test_open_to_all_without_a_secret() -> None:
    found = verdict(examine(plan(listen="tcp://*:0", secret=None), WELL), "bind")
    assert found.severity is ERROR
    assert "secret" in found.fix


@pytest.mark.parametrize(
    ("machine", "check", "severity", "fix"),
    [
        (replace(WELL, threads=16), "threads", WARNING, "OMP_NUM_THREADS=8"),
        (replace(WELL, disk=1 << 20), "disk", ERROR, "--run-dir"),
        (replace(WELL, memory=1 << 20), "memory", ERROR, "fewer nodes"),
    ],
)
def test_the_machine(machine: Machine, check: str, severity: Severity, fix: str) -> None:
    findings = examine(plan(), machine)
    assert verdict(findings, check).severity is worst(findings) is severity
    assert fix in verdict(findings, check).fix


def test_large_messages_that_dont_arrive(member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    send = ZmqTransport.send

    def narrow(self: ZmqTransport, route: Route, header: bytes, payload: memoryview | None = None) -> object:
        if payload is not None and payload.nbytes > 1400:
            return object()  # taken, and gone
        return send(self, route, header, payload)

    monkeypatch.setattr(ZmqTransport, "send", narrow)
    found = verdict(examine(plan(member), WELL), "MTU")
    assert found.severity is ERROR
    assert "mtu 1280" in found.fix


def test_data_port_closed(member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    send = ZmqTransport.send
    monkeypatch.setattr(ZmqTransport, "send", lambda s, r, h, p=None: object() if p is not None else send(s, r, h, p))
    assert verdict(examine(plan(member), WELL), "data").severity is ERROR


def test_this_machine() -> None:
    found = doctor.this_machine(Path("/nowhere/to/be/found"))
    assert found.cores >= 1 and found.threads >= 1
    assert found.memory > 1 << 20
    assert found.disk >= 0


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command(member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    monkeypatch.setattr(doctor, "this_machine", lambda folder: replace(WELL, threads=16))
    keys.write_secret(tmp_path / "secret", SECRET)
    args = ["doctor", member, "--secret-file", str(tmp_path / "secret"), "--listen", "tcp://127.0.0.1"]
    result = CliRunner().invoke(cli.app, [*args, *(["--json"] if as_json else [])])
    assert result.exit_code == 1, result.output
    if as_json:
        found = {finding["check"]: finding for finding in json.loads(result.output)}
        assert found["threads"]["severity"] == "warning"
        assert found["member"]["severity"] == "ok"
    else:
        assert "warning  threads: 16 threads on 8 cores\n         -> set OMP_NUM_THREADS=8" in result.output


@contextmanager
def speaking(answer: Callable[[bytes], bytes]) -> Iterator[str]:
    """The address of somebody who answers each header with another one."""
    address: list[str] = []
    ready, over = threading.Event(), threading.Event()

    class Odd:
        transport: ZmqTransport

        def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
            self.transport.send(route, answer(header))

        def lost(self, route: Route, reason: str) -> None: ...

    async def serve() -> None:
        odd = Odd()
        odd.transport = ZmqTransport("tcp://127.0.0.1:0", secret=SECRET)
        await odd.transport.start(odd)
        address.append(odd.transport.control)
        ready.set()
        while not over.is_set():
            await asyncio.sleep(0.01)
        await odd.transport.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    try:
        yield address[0]
    finally:
        over.set()
        thread.join()
