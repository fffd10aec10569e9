"""What figures mean: tables with literal numbers, and a fix wherever it isn't well."""

import pytest

from p2p import diagnosis
from p2p.diagnosis import Finding, Link, Severity
from p2p.net.messages import SpanStatus

OK, WARNING, ERROR = Severity
MB = 10**6


@pytest.mark.parametrize(
    ("cores", "per_node", "nodes", "severity", "fix"),
    [
        (8, 8, 1, OK, ""),
        (8, 2, 4, OK, ""),
        (8, 8, 2, WARNING, "OMP_NUM_THREADS=4:"),
        (2, 1, 4, WARNING, "at most 2 nodes here"),
    ],
)
def test_threads(cores: int, per_node: int, nodes: int, severity: Severity, fix: str) -> None:
    found = diagnosis.threads(cores, per_node, nodes)
    assert found.severity is severity
    assert fix in found.fix


@pytest.mark.parametrize(
    ("free", "state", "severity"),
    [(401 * 2**20, 100 * 2**20, OK), (399 * 2**20, 100 * 2**20, WARNING), (99 * 2**20, 0, ERROR), (100 * 2**20, 0, OK)],
)
def test_disk(free: int, state: int, severity: Severity) -> None:
    found = diagnosis.disk("/data", free, state)
    assert found.severity is severity
    assert ("--run-dir" in found.fix) is (severity is not OK)


@pytest.mark.parametrize(("nodes", "severity"), [(1, OK), (2, OK), (3, ERROR)])
def test_memory(nodes: int, severity: Severity) -> None:
    assert diagnosis.memory(1000 * 2**20, 100 * 2**20, nodes).severity is severity


@pytest.mark.parametrize(
    ("mbytes", "step", "severity", "says"),
    [
        (100.0, 10.0, OK, "bears 5 nodes"),
        (100.0, 2.1, OK, "bears 1 nodes"),
        (100.0, 1.0, WARNING, "no further node"),
        (100.0, 0.5, WARNING, "learned slowly"),
        (100.0, 0.0, OK, "nobody has measured a step"),
    ],
)
def test_exchange(mbytes: float, step: float, severity: Severity, says: str) -> None:
    found = diagnosis.exchange(Link(0.0, mbytes * MB, 2 * mbytes * MB), 100 * MB, step)
    assert found.severity is severity
    assert says in found.says
    assert bool(found.fix) is (severity is not OK)


def test_a_loopback_address_is_no_use_to_others() -> None:
    found = diagnosis.advertised("tcp://127.0.0.1:7000", True, False, "10.0.0.7")
    assert found.severity is ERROR
    assert "--advertise 10.0.0.7" in found.fix
    assert diagnosis.advertised("tcp://127.0.0.1:7000", True, True, "127.0.0.1").severity is OK
    assert diagnosis.advertised("tcp://10.0.0.7:7000", False, False, "10.0.0.7").severity is OK


def test_a_listener_that_cant_be_called() -> None:
    found = diagnosis.reachable("tcp://10.0.0.7:7000", 7000, "no connection")
    assert found.severity is ERROR
    assert "7000 and 7001" in found.fix and "--dial-only" in found.fix
    assert diagnosis.reachable("tcp://10.0.0.7:7000", 7000, "").severity is OK


def test_mtu() -> None:
    assert diagnosis.mtu(512, 65536) == Finding(
        "MTU",
        ERROR,
        "512 bytes come through, 65536 bytes don't: some router drops full packets without saying so",
        "lower the interface's MTU (ip link set dev IFACE mtu 1280), or let ICMP 'fragmentation needed' through",
    )


def test_link_figures() -> None:
    assert diagnosis.link(Link(0.0123, 2.5e9, 1234.0)).says == "round trip 12.3 ms, up 2.5 GB/s, down 1.23 kB/s"


def span(source: str, target: str, bandwidth: float, queueing: float = 0.0) -> SpanStatus:
    return SpanStatus(source, target, 0.01, bandwidth, queueing, 3)


@pytest.mark.parametrize(
    ("spans", "severity", "says"),
    [
        ([], Severity.OK, "no member has measured"),
        ([span("eu", "us", 0.0)], Severity.OK, "no member has measured"),
        ([span("eu", "us", 50 * MB), span("us", "eu", 90 * MB)], Severity.OK, "from eu to us, carry 50 MB/s"),
        ([span("eu", "eu", 900 * MB), span("us", "eu", 10 * MB)], Severity.WARNING, "us to eu, carry 10 MB/s: the model takes"),
        ([span("", "", 90 * MB, 2.5)], Severity.WARNING, "from one node to another messages wait 2.5 s"),
    ],
)  # fmt: skip
def test_the_swarms_own_links(spans: list[SpanStatus], severity: Severity, says: str) -> None:
    found = diagnosis.between(spans, int(100 * MB), 1.0)
    assert found.severity is severity and says in found.says
    assert bool(found.fix) is (severity is not Severity.OK)
