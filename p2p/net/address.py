"""Addresses, `tcp://host:port`: read, judged, and found."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import NamedTuple

from p2p.errors import JoinError

WILDCARDS = ("*", "0.0.0.0", "::")
_PATTERN = re.compile(r"tcp://(?:\[([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?)\]|([\w.-]+|\*)):([0-9]{1,5})", re.ASCII)


class Address(NamedTuple):
    """A host (a name, or a numeric address without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"

    @property
    def numeric(self) -> bool:
        """Whether the host needs no resolver."""
        return self.host == "*" or _numeric(self.host) is not None

    @property
    def loopback(self) -> bool:
        """Whether it can't be reached from another machine, or reach one."""
        host = _numeric(self.host)
        return host is not None and host.is_loopback


def parse_address(text: str) -> Address:
    """`tcp://host:port`, with brackets around an IPv6 host; JoinError for anything else.

    `localhost` is 127.0.0.1: resolvers may answer ::1, where nobody listens.
    """
    found = _PATTERN.fullmatch(text)
    if found is None or int(found[3]) > 65535 or (found[1] and _numeric(found[1]) is None):
        raise JoinError(f"{text!r} is no address: tcp://host:port is expected, as in tcp://10.0.0.7:7000 or tcp://[::1]:7000")
    host = found[1] or found[2]
    return Address("127.0.0.1" if host == "localhost" else host, int(found[3]))


def outward_host(toward: str | None = None) -> str:
    """This machine's address on the interface that leads to the host `toward`, or to the world; nothing is sent.

    Without any route, 127.0.0.1.
    """
    for host in (toward,) if toward else ("192.0.2.1", "2001:db8::1"):  # addresses reserved for documentation
        try:
            family, kind, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def _numeric(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
