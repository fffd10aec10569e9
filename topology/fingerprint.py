"""A topology's fingerprint: nodes whose code says different things find out before they mix."""

from __future__ import annotations

import hashlib
import struct

from topology.base import Topology
from topology.errors import TopologyRefused
from topology.measure import canonical
from topology.mixing import Mixing

ROUNDS = 16
SIZES = range(1, 10)


def fingerprint(topology: Topology) -> bytes:
    """16 bytes: the mixing of 1 to 9 canonical members over 16 rounds; a number that is refused counts as refused.

    A topology that states its one number of members (`states`) adds that.
    """
    digest = hashlib.blake2b(digest_size=16, person=b"topology")
    stated = getattr(topology, "states", None)
    for n in sorted({*SIZES, *([stated] if stated else [])}):
        digest.update(struct.pack("<I", n))
        if topology.refuses(n) is not None:
            digest.update(b"refused")
            continue
        for t in range(ROUNDS):
            digest.update(_bytes(topology, n, t))
    return digest.digest()


def _bytes(topology: Topology, n: int, round: int) -> bytes:
    try:
        return encoded(topology.whole(canonical(n), round))
    except TopologyRefused:
        return b"refused"


def encoded(mixing: Mixing) -> bytes:
    """Receiver, sender, weight of each entry; weights to 1e-9, so the last bit of a sum doesn't count."""
    entries = ((i, j, round(w * 1e9)) for i, row in enumerate(mixing.rows) for j, w in row.items())
    return b"".join(struct.pack("<IIq", *entry) for entry in entries)
