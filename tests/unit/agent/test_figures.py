"""Figures: what a node says of its links, in a few bytes, and only when it changed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from p2p.agent.figures import ENTRY, MOST, pack, publish, signed_part, sound, unpack
from p2p.net.messages import Figures
from topology import Figure

NODES = [f"{index:02x}" * 16 for index in range(1, 256, 16)]


def said(links: bytes, version: int = 1) -> Figures:
    return Figures(NODES[0], version, links, b"s" * 64)


def measured(seed: int) -> dict[str, Figure]:
    rng = Random(seed)
    return {node: Figure(10 ** rng.uniform(-4, 1), 10 ** rng.uniform(1, 11), 10 ** rng.uniform(-1, 1)) for node in NODES}


def test_eight_bytes_a_link_hold_what_is_published() -> None:
    published = publish(measured(1), {})
    links = pack(published)
    assert len(links) == ENTRY * len(NODES)
    assert sound(said(links))
    assert unpack(links, [*NODES, "0" * 32]) == published
    for node, figure in measured(1).items():
        assert published[node].bandwidth == pytest.approx(figure.bandwidth, rel=0.2)
        assert published[node].round_trip == pytest.approx(figure.round_trip, rel=0.2)


def test_what_is_not_measured_stays_so_or_is_what_it_was() -> None:
    assert unpack(pack({NODES[1]: Figure(bandwidth=1.0)}), NODES) == {NODES[1]: Figure(0.0, 1.0, 0.0)}
    before = publish({NODES[1]: Figure(0.01, 1e6, 0.1)}, {})
    assert publish({NODES[1]: Figure(0.01, 0.0, 0.0)}, before) == before
    assert publish({}, before) == {}, "who is gone is not spoken of"


@pytest.mark.parametrize(("factor", "anew"), [(0.8, False), (1.25, False), (0.5, True), (2.0, True)])
def test_a_figure_is_said_anew_only_beyond_its_rounding(factor: float, anew: bool) -> None:
    before = publish({NODES[1]: Figure(0.08, 2**20, 0.5)}, {})
    for name in ("round_trip", "bandwidth", "queueing"):
        moved = replace(before[NODES[1]], **{name: getattr(before[NODES[1]], name) * factor})
        assert (publish({NODES[1]: moved}, before) != before) is anew


def test_noise_below_what_matters_is_not_said() -> None:
    noise = [publish({NODES[1]: Figure(1e-6 * k, 1e6, 1e-5 * k * k)}, {}) for k in range(1, 9)]
    assert all(each == noise[0] for each in noise)


@pytest.mark.parametrize(
    "links", [b"x" * (ENTRY - 1), b"x" * 2 * ENTRY, bytes(range(2 * ENTRY))[::-1], b"x" * ENTRY * (MOST + 1)]
)
def test_unsound_figures_are_seen_by_their_bytes(links: bytes) -> None:
    assert not sound(said(links))


def test_any_value_is_read_and_what_is_signed_is_all_of_it() -> None:
    assert unpack(bytes.fromhex(NODES[0])[:5] + b"\xff\x01\x80", NODES)[NODES[0]].queueing == 1.0
    assert not sound(replace(said(b""), signature=b"")) and not sound(said(b"", version=-1))
    texts = {
        signed_part(said(b"")),
        signed_part(said(b"", 2)),
        signed_part(said(b"x")),
        signed_part(replace(said(b""), node="b")),
    }
    assert len(texts) == 4
