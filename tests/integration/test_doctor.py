"""The doctor between two network namespaces: a thin link, a firewall, a path that swallows full packets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from p2p.net import keys

ROOT = Path(__file__).resolve().parents[2]
HERE, THERE = f"sl-a{os.getpid() % 10_000}", f"sl-b{os.getpid() % 10_000}"
MEMBER = "tcp://10.77.0.1:7000"
LONG = [0x0400, 0x0800, 0x1000, 0x2000, 0x4000, 0x8000]  # the bits of a packet's length from 1024 on


def shell(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=10)


def inside(namespace: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", namespace, *words]


def possible() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")):
        return False
    made = subprocess.run(["ip", "netns", "add", HERE], capture_output=True).returncode == 0
    if made:
        shell("ip", "netns", "del", HERE)
    return made


pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not possible(), reason="needs root, ip and tc, and may make network namespaces"),
]


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Path]:
    """A node in one namespace; the doctor goes to the other. What is given is the secret's file."""
    secret, stop = tmp_path / "secret", tmp_path / "stop"
    keys.write_secret(secret, keys.new_secret())
    for namespace in (HERE, THERE):
        shell("ip", "netns", "add", namespace)
    process = None
    try:
        shell("ip", "link", "add", "sl-v", "netns", HERE, "type", "veth", "peer", "name", "sl-v", "netns", THERE)
        for host, namespace in enumerate((HERE, THERE), 1):
            for words in (
                ("addr", "add", f"10.77.0.{host}/24", "dev", "sl-v"),
                ("link", "set", "sl-v", "up"),
                ("link", "set", "lo", "up"),
            ):
                shell(*inside(namespace, "ip", *words))
        program = str(ROOT / "tests/integration/nodes/sitting.py")
        command = inside(HERE, sys.executable, program, MEMBER, str(secret), str(stop))
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
        wait_for_member(secret)
        yield secret
    finally:
        if process is not None:
            stop.touch()
            process.wait(20)
        for namespace in (HERE, THERE):
            shell("ip", "netns", "del", namespace)


def wait_for_member(secret: Path) -> None:
    deadline = time.monotonic() + 60
    while (found := examined(secret)).get("member", {}).get("severity") != "ok":
        assert time.monotonic() < deadline, found


def examined(secret: Path, *options: str) -> dict[str, dict[str, Any]]:
    """The findings, by what was looked at."""
    words = ["doctor", MEMBER, "--secret-file", str(secret), "--port", "7100", "--json", *options]
    command = inside(THERE, sys.executable, "-c", "from p2p.cli import main; main()", *words)
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert result.returncode in (0, 1, 2), result.stderr
    return {finding["check"]: finding for finding in json.loads(result.stdout)}


def tc(namespace: str, *words: str) -> None:
    shell(*inside(namespace, "tc", *words))


def swallow(namespace: str, *matches: tuple[str, ...]) -> None:
    """What matches goes out at a bit a second, as good as never (but for the first packet)."""
    tc(namespace, "qdisc", "add", "dev", "sl-v", "root", "handle", "1:", "htb", "default", "1")
    for number, rate in (("1:1", "1gbit"), ("1:2", "8bit")):
        tc(namespace, "class", "add", "dev", "sl-v", "parent", "1:", "classid", number, "htb", "rate", rate)
    tc(namespace, "qdisc", "add", "dev", "sl-v", "parent", "1:2", "pfifo", "limit", "10")
    for match in matches:
        where = ["dev", "sl-v", "parent", "1:", "protocol", "ip"]
        tc(namespace, "filter", "add", *where, "u32", "match", *match, "flowid", "1:2")


def test_a_link_as_it_is_and_a_thin_one(member: Path) -> None:
    found = examined(member)
    assert {finding["severity"] for check, finding in found.items() if check not in ("threads", "memory", "disk")} == {"ok"}
    assert found["bind"]["says"] == "tcp://10.77.0.2:7100"
    assert "bears" in found["exchange"]["says"]
    for namespace in (HERE, THERE):
        tc(namespace, "qdisc", "add", "dev", "sl-v", "root", "tbf", "rate", "8mbit", "burst", "32k", "latency", "400ms")
    found = examined(member)
    assert found["exchange"]["severity"] == "warning"
    assert "learned slowly" in found["exchange"]["says"]
    assert found["exchange"]["fix"]
    up, down = (float(part.split()[1]) for part in found["link"]["says"].split(", ")[1:])
    assert all(700 < speed < 1100 for speed in (up * 1000 if up < 10 else up, down * 1000 if down < 10 else down))  # kB/s


def test_a_firewall_in_front_of_the_listener(member: Path) -> None:
    swallow(HERE, ("ip", "dport", "7100", "0xffff"))
    found = examined(member)
    assert found["listener"]["severity"] == "error"
    assert "7100 and 7101" in found["listener"]["fix"]
    assert "bears" in found["exchange"]["says"], "the link was measured all the same"
    assert "listener" not in examined(member, "--dial-only")


def test_full_packets_are_swallowed(member: Path) -> None:
    swallow(THERE, *(("u16", hex(bit), hex(bit), "at", "2") for bit in LONG))
    found = examined(member)
    assert found["member"]["severity"] == "ok"
    assert found["MTU"]["severity"] == "error"
    assert "mtu 1280" in found["MTU"]["fix"]
