"""The chart: what all say of their links reaches all, and is said again only when it changed; in virtual time."""

from __future__ import annotations

from hashlib import blake2b
from random import Random

import pytest

from p2p.agent import chart
from p2p.agent.chart import PERIOD, SETTLE, Chart
from p2p.agent.figures import ENTRY, MOST, SHORT, pack, signed_part
from p2p.agent.instructions import Refused
from p2p.agent.records import identify
from p2p.net.messages import Figures, Gossip, News
from tests.simulation.membership_world import World, make_record
from topology import Figure, Links

RATE = 1e6
HEARD = PERIOD + 20.0
"""Seconds within which all have heard what one measures, and have made links of it."""


def mark(key: bytes, data: bytes) -> bytes:
    return blake2b(data, key=key, digest_size=64).digest()


@pytest.fixture(autouse=True)
def _marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for Ed25519, as the world's records do."""
    monkeypatch.setattr(chart, "verified", lambda key, data, signature: signature == mark(key, data))


class Measuring:
    """A world whose nodes measure their links to the next two; `rates` may be changed, `jitter` is what measuring adds."""

    def __init__(self, count: int, loss: float = 0.0) -> None:
        self.world = World(5, latency=0.01, loss=loss)
        self.world.jitter = 0.2
        self.nodes = sorted(self.world.flock(count))
        self.rates = dict.fromkeys(self.nodes, RATE)
        self.jitter, self._rng = 0.0, Random(1)
        for node in self.nodes:
            key = self.world.machines[node].record.key
            self.chart(node).open(lambda node=node: self._measured(node), lambda data, key=key: mark(key, data), 0.0)

    def chart(self, node: str) -> Chart:
        return self.world.machines[node].chart

    def links(self) -> list[Links]:
        """Everybody's, on the world's machines."""
        found = [self.chart(node).links for node in self.world.machines]
        return [links for links in found if links is not None]

    def said(self) -> int:
        """Figures that were ever said."""
        return sum(machine.chart._version - machine.record.incarnation for machine in self.world.machines.values())

    def _measured(self, node: str) -> dict[str, tuple[float, float]]:
        at = self.nodes.index(node)
        rate = self.rates[node] * (1 + self.jitter * (2 * self._rng.random() - 1))
        return {self.nodes[(at + k) % len(self.nodes)]: (rate, 0.0) for k in (1, 2)}


@pytest.mark.parametrize(("count", "loss"), [(2, 0.0), (16, 0.0), (16, 0.1), (64, 0.0)])
def test_all_make_the_same_links_of_what_all_say(count: int, loss: float) -> None:
    measuring = Measuring(count, loss)
    measuring.world.run((12 + count / 10) * PERIOD)
    links = measuring.links()
    assert len(links) == count and all(each == links[0] for each in links)
    assert links[0].ids == tuple(measuring.nodes)
    assert links[0].bandwidth[0][1] == pytest.approx(RATE, rel=0.2)
    assert links[0].round_trip[0][1] == pytest.approx(0.02, rel=0.2)


def test_what_jitters_within_the_rounding_is_not_said_again() -> None:
    measuring = Measuring(8)
    measuring.world.run(4 * PERIOD)
    before, links = measuring.said(), measuring.links()[0]
    measuring.jitter = 0.1
    measuring.world.run(30 * PERIOD)
    assert measuring.said() == before
    assert measuring.links()[0] is not None and measuring.links()[0].version == links.version


def test_one_that_changed_is_said_once_and_heard_by_all() -> None:
    measuring = Measuring(16)
    measuring.world.run(6 * PERIOD)
    before, node = measuring.said(), measuring.nodes[3]
    measuring.rates[node] = RATE / 10
    measuring.world.run(3 * PERIOD + HEARD)  # three looks of five
    assert measuring.said() == before + 1
    links = measuring.links()
    assert all(each == links[0] for each in links)
    assert links[0].bandwidth[3][4] == pytest.approx(RATE / 10, rel=0.2)
    assert links[0].bandwidth[4][5] == pytest.approx(RATE, rel=0.2)


def test_a_newcomer_hears_all_of_it_when_it_comes() -> None:
    measuring = Measuring(8)
    measuring.world.run(4 * PERIOD)
    late = measuring.world.add(8, measuring.nodes[0])
    measuring.world.run(SETTLE + 1)
    own, others = measuring.chart(late).links, measuring.links()
    assert own is not None and all(each == own for each in others), "and its view counts for the others, too"


def test_what_a_member_carries_is_what_it_says_of_the_like() -> None:
    measuring = Measuring(4)
    first, second, third, _ = measuring.nodes
    assert measuring.chart(third).carries(first, "new", "") == 0.0, "it has said nothing"
    measuring.rates[second] = 9 * RATE
    measuring.world.run(4 * PERIOD)
    chart = measuring.chart(third)
    assert chart.carries(first, second, "") == pytest.approx(RATE, rel=0.2)
    assert chart.carries(second, "f" * 32, "") == pytest.approx(9 * RATE, rel=0.2), "of a newcomer nothing is measured"
    assert chart.carries(second, "f" * 32, "elsewhere") == pytest.approx(9 * RATE, rel=0.2)


def test_who_dies_is_left_out() -> None:
    measuring = Measuring(8)
    measuring.world.run(4 * PERIOD)
    measuring.world.kill(measuring.nodes[2])
    measuring.world.run(60.0)
    assert all(measuring.nodes[2] not in links.ids and len(links.ids) == 7 for links in measuring.links())


def test_who_starts_again_with_an_older_clock_is_heard_again() -> None:
    measuring = Measuring(4)
    node = measuring.nodes[0]
    measuring.chart(node)._version += 10**9
    measuring.world.run(3 * PERIOD)
    index = next(i for i in range(4) if identify(make_record(i).key) == node)
    measuring.world.kill(node)
    measuring.world.add(index, measuring.nodes[1])
    key = measuring.world.machines[node].record.key
    measuring.rates[node] = 100 * RATE
    measuring.chart(node).open(lambda: measuring._measured(node), lambda data: mark(key, data), measuring.world.now)
    measuring.world.run(HEARD)
    assert all(links.bandwidth[0][1] == pytest.approx(100 * RATE, rel=0.2) for links in measuring.links())


# --- from outside ------------------------------------------------------------------------------------------------


def forged(measuring: Measuring, **changes: object) -> list[str]:
    """Why what node 1 says in node 2's name is refused by node 0."""
    liar, victim = measuring.nodes[1], measuring.nodes[2]
    key = measuring.world.machines[victim].record.key
    given = {"node": victim, "version": 2**62, "links": pack({measuring.nodes[0]: Figure(1.0, 1.0, 1.0)})} | changes
    unsigned = Figures(**given, signature=b"")  # type: ignore[arg-type]
    made = Figures(**given, signature=mark(key, signed_part(unsigned)))  # type: ignore[arg-type]
    if "signature" in changes:
        made = Figures(**given)  # type: ignore[arg-type]
    told = measuring.world.machines[measuring.nodes[0]].handle(liar, Gossip(News(figures=(made,))), measuring.world.now)
    return [each.reason for each in told if isinstance(each, Refused)]


def test_nobody_speaks_for_another() -> None:
    measuring = Measuring(4)
    measuring.world.run(3 * PERIOD)
    before = measuring.chart(measuring.nodes[0]).figure(measuring.nodes[2], measuring.nodes[3])
    unsigned = Figures(measuring.nodes[2], 2**62, b"", b"s" * 64)
    held = measuring.world.machines[measuring.nodes[0]]
    told = held.handle(measuring.nodes[1], Gossip(News(figures=(unsigned,))), measuring.world.now)
    assert [each.reason for each in told if isinstance(each, Refused)] == ["signature"]
    assert measuring.chart(measuring.nodes[0]).figure(measuring.nodes[2], measuring.nodes[3]) == before


LONG = b"".join(index.to_bytes(SHORT, "big") + b"abc" for index in range(MOST + 1))


@pytest.mark.parametrize("links", [LONG, b"x" * (ENTRY + 1)])
def test_what_is_too_long_or_no_figures_is_not_kept(links: bytes) -> None:
    assert forged(Measuring(4), links=LONG[:-ENTRY]) == []
    assert forged(Measuring(4), links=links) == ["malformed"]


def test_what_is_old_or_of_a_stranger_is_passed_over() -> None:
    measuring = Measuring(4)
    measuring.world.run(3 * PERIOD)
    assert forged(measuring, version=0, links=b"x") == []
    assert forged(measuring, node="0" * 32, links=b"x") == []
    assert "0" * 32 not in measuring.chart(measuring.nodes[0])._said
