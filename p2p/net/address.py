"""Addresses, `tcp://host:port`: read, judged, and found."""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
import sys
from pathlib import Path
from typing import NamedTuple

from p2p.errors import ConfigError, JoinError

WILDCARDS = ("*", "0.0.0.0", "::")
_SIOCGIFADDR = 0x8915  # linux/sockios.h
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


def interface_host(name: str) -> str:
    """The address of this machine's network interface `name`: its IPv4 one, else its first IPv6 one that isn't link-local.

    Raises ConfigError where there is none. Linux only; elsewhere the address has to be given.
    """
    host = (_ipv4_of(name) or _ipv6_of(name)) if sys.platform == "linux" else None
    if host is None:
        names = ", ".join(known for _, known in socket.if_nameindex())
        raise ConfigError(
            f"no address is known of the interface {name!r} (there are: {names}); give the address: --advertise HOST"
        )
    return host


def _ipv4_of(name: str) -> str | None:
    import fcntl

    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            return socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None


def _ipv6_of(name: str) -> str | None:
    table = Path("/proc/net/if_inet6")
    rows = [line.split() for line in table.read_text().splitlines()] if table.exists() else []
    found = [ipaddress.IPv6Address(int(row[0], 16)) for row in rows if row[-1] == name]
    return next((str(address) for address in found if not address.is_link_local), None)


def _numeric(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
