"""What a forked child must let go of: it would hold the parent's connections and ports open after the parent's death."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Collection
from contextlib import suppress

from p2p.net.address import Address


def close_inherited(ports: Collection[int], peers: Collection[Address]) -> None:
    """Closes this process's TCP sockets that are bound to one of `ports` or connected to one of `peers`.

    They are found by their addresses, for libzmq doesn't tell its descriptors. POSIX only.
    """
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # closed meanwhile, or not a socket with addresses
            descriptor = int(name)
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode) and _belongs(descriptor, ports, peers):
                os.close(descriptor)


def _belongs(descriptor: int, ports: Collection[int], peers: Collection[Address]) -> bool:
    borrowed = socket.socket(fileno=descriptor)
    try:
        if borrowed.family not in (socket.AF_INET, socket.AF_INET6) or borrowed.type != socket.SOCK_STREAM:
            return False
        if borrowed.getsockname()[1] in ports:
            return True
        host, port, *_ = borrowed.getpeername()
        return any(port == peer.port and _same_host(host, peer.host) for peer in peers)
    finally:
        borrowed.detach()


def _same_host(connected: str, dialled: str) -> bool:
    """Whether a socket's numeric peer may be the host that was dialled; a name may be any."""
    try:
        wanted = ipaddress.ip_address(dialled)
    except ValueError:
        return True
    found = ipaddress.ip_address(connected)
    return found == wanted or getattr(found, "ipv4_mapped", None) == wanted
