"""What a node says of its links, in eight bytes each: rounded, and said anew only when it changed by more than the rounding.

A link is the first ten hex digits of the other's id, and a byte each for round trip, bandwidth and queueing: 0 where nothing is
measured, else b for sqrt(2) ** (b - 128). Links are in the order of their ids, each once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise

from p2p.net.messages import Figures
from topology import Figure
from topology.links import RUNG, settled

MOST = 64
"""Links that a node speaks of."""
SHORT = 5
"""Bytes of an id."""
ENTRY = SHORT + 3
MIDDLE = 128
LEAST = Figure(round_trip=1e-4, bandwidth=1.0, queueing=1e-2)
"""What is less is said to be so much: below it is noise."""


def sound(figures: Figures) -> bool:
    """Lengths and order, before anything is kept or computed."""
    links = figures.links
    if len(figures.signature) != 64 or figures.version < 0 or len(links) % ENTRY or len(links) > MOST * ENTRY:
        return False
    names = [links[at : at + SHORT] for at in range(0, len(links), ENTRY)]
    return all(before < after for before, after in pairwise(names))


def signed_part(figures: Figures) -> bytes:
    """What the signature is over."""
    return b"starlings figures" + figures.node.encode() + figures.version.to_bytes(8, "big") + figures.links


def pack(figures: Mapping[str, Figure]) -> bytes:
    """By node ids, at most MOST of them, with published values."""
    entries = {bytes.fromhex(node)[:SHORT]: figure for node, figure in figures.items()}
    return b"".join(name + bytes(map(_byte, _values(entries[name]))) for name in sorted(entries))


def unpack(links: bytes, nodes: Iterable[str]) -> dict[str, Figure]:
    """Of those nodes that are spoken of."""
    said = {links[at : at + SHORT]: links[at + SHORT : at + ENTRY] for at in range(0, len(links), ENTRY)}
    found = ((node, said.get(bytes.fromhex(node)[:SHORT])) for node in nodes)
    return {node: Figure(*map(_value, values)) for node, values in found if values is not None}


def lasting(links: bytes) -> bytes:
    """Without the queueing, which changes by the minute and says nothing about the link itself."""
    return b"".join(links[at : at + ENTRY - 1] for at in range(0, len(links), ENTRY))


def publish(measured: Mapping[str, Figure], before: Mapping[str, Figure]) -> dict[str, Figure]:
    """What to say: as before, where the measured value is not further from it than rounding goes, or is not there just now."""
    return {node: _settled(figure, before.get(node, Figure())) for node, figure in measured.items()}


def _settled(measured: Figure, before: Figure) -> Figure:
    triples = zip(_values(measured), _values(before), _values(LEAST), strict=True)
    return Figure(*(settled(max(new, least), old or None) if new else old for new, old, least in triples))


def _values(figure: Figure) -> tuple[float, float, float]:
    return figure.round_trip, figure.bandwidth, figure.queueing


def _byte(value: float) -> int:
    return min(max(round(math.log(value, RUNG)) + MIDDLE, 1), 255) if value else 0


def _value(byte: int) -> float:
    return float(RUNG ** (byte - MIDDLE)) if byte else 0.0
