"""Addresses are read exactly, and errors say what is expected."""

import sys

import pytest

from p2p.errors import ConfigError, JoinError
from p2p.net.address import Address, interface_host, outward_host, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("tcp://127.0.0.1:7000", "127.0.0.1", 7000, True),
        ("tcp://localhost:7000", "127.0.0.1", 7000, True),
        ("tcp://[::1]:7000", "::1", 7000, True),
        ("tcp://10.0.0.7:0", "10.0.0.7", 0, False),
        ("tcp://*:7000", "*", 7000, False),
        ("tcp://0.0.0.0:7000", "0.0.0.0", 7000, False),
        ("tcp://[fe80::1%eth0]:65535", "fe80::1%eth0", 65535, False),
        ("tcp://node-1.example.org:1", "node-1.example.org", 1, False),
    ],
)
def test_what_is_an_address(text: str, host: str, port: int, loopback: bool) -> None:
    address = parse_address(text)
    assert address == Address(host, port)
    assert address.loopback is loopback
    assert str(address) == text.replace("localhost", "127.0.0.1")


@pytest.mark.parametrize(
    "text",
    [
        "", "10.0.0.7:7000", "tcp://10.0.0.7", "tcp://:7000", "tcp://h:65536", "tcp://h:-1", "tcp://h:70 00", "tcp://h:7000/x",
        "ipc:///tmp/x", "tcp://::1:7000", "tcp://[10.0.0.7]:7000", "tcp://[::1:7000", "tcp://[1::2::3]:7", "tcp://a;b:7",
        "tcp://h:7000\n", "tcp://h:٧", "tcp://hö:7",
    ],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    with pytest.raises(JoinError, match=r"is no address: tcp://host:port is expected"):
        parse_address(text)


def test_the_way_out_is_the_interface_that_leads_there() -> None:
    assert outward_host("127.0.0.1") == "127.0.0.1"
    assert outward_host() not in ("", "0.0.0.0", "::")


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_an_interface_has_an_address() -> None:
    assert interface_host("lo") == "127.0.0.1"
    with pytest.raises(ConfigError, match=r"the interface 'nix0' \(there are: .*lo.*\); give the address: --advertise HOST"):
        interface_host("nix0")
