"""From what members say of their links to a table of all pairs, and to sites."""

from __future__ import annotations

import random

import pytest

from topology import Figure, Member, Survey, canonical, make, sited, spans, surveyed, with_sites
from topology.links import LAN, LAN_ROUND_TRIP, WAN, WAN_ROUND_TRIP

NEAR, FAR = 0.001, 0.04


def said(members: tuple[Member, ...], place: list[int], known: float = 1.0, seed: int = 0) -> Survey:
    """Everybody's word on a part of the others; 1 GB/s inside a place, 10 MB/s between."""
    rng = random.Random(seed)

    def figure(i: int, j: int) -> Figure:
        near = place[i] == place[j]
        return Figure((NEAR if near else FAR) * rng.choice((1, 1.4)), 1e9 if near else 1e7, 0.1)

    n = range(len(members))
    return {
        members[i].id: {members[j].id: figure(i, j) for j in n if i != j and (rng.random() < known or abs(i - j) == 3)}
        for i in n
    }


@pytest.mark.parametrize("known", [1.0, 0.5])
def test_sites_are_found_in_any_view_of_them(known: float) -> None:
    members, place = canonical(9), [0, 1, 2] * 3
    survey = said(members, place, known)
    assert [m.site for m in sited(members, survey)] == [f"site{k}" for k in place]
    assert with_sites(members, surveyed(members, survey)) == sited(members, survey), "the table says the same"
    stated = canonical(9, 2)
    assert sited(stated, survey) == stated, "who states a site is believed"


def test_a_busy_machine_is_no_site() -> None:
    members = canonical(4)
    survey = {a.id: {b.id: Figure(0.004 if "m3" in (a.id, b.id) else 0.0002) for b in members if a != b} for a in members}
    assert {m.site for m in sited(members, survey)} == {"site0"}
    assert {m.site for m in sited(members, {})} == {"site0"}, "nor is it where nothing is measured"


def test_what_is_not_measured_is_like_what_is() -> None:
    members = (Member("a", "x"), Member("b", "x"), Member("c", "y"), Member("d", "y"), Member("e", "z"))
    survey = {
        "a": {"c": Figure(0.02, 5e6), "e": Figure(0.02, 9e6)},
        "b": {"d": Figure(0.0, 6e6)},
        "c": {"d": Figure(0.001, 0.0)},
        "d": {"c": Figure(0.0, 2e9)},
    }
    links = surveyed(members, survey, version=7)
    assert (links.version, links.ids) == (7, ("a", "b", "c", "d", "e"))
    rate, trip = links.bandwidth, links.round_trip
    assert (rate[0][2], rate[2][0]) == (5e6, 5e6), "the far end's word counts for the way back"
    assert (rate[1][3], rate[3][1]) == (6e6, 6e6)
    assert (rate[1][2], trip[1][3]) == (5e6, 0.02), "as between these two sites"
    assert rate[3][4] == 6e6, "as between any two"
    assert (rate[2][3], rate[3][2], rate[0][1]) == (2e9, 2e9, 2e9), "as inside any"
    none = surveyed(members, {})
    assert (none.bandwidth[0][1], none.bandwidth[0][2]) == (LAN, WAN)
    assert (none.round_trip[0][1], none.round_trip[0][2]) == (LAN_ROUND_TRIP, WAN_ROUND_TRIP)


def test_each_end_may_have_its_own_way() -> None:
    members = canonical(2)
    links = surveyed(members, {"m0": {"m1": Figure(0.01, 4e6)}, "m1": {"m0": Figure(0.03, 1e6)}})
    assert (links.bandwidth[0][1], links.bandwidth[1][0]) == (4e6, 1e6)


def test_spans_are_medians_of_what_is_measured() -> None:
    members = canonical(6, 2)
    found = spans(members, said(members, [0, 0, 0, 1, 1, 1]) | {"stranger": {"m0": Figure(9.0)}})
    assert [(span.source, span.target, span.links) for span in found] == [
        ("site0", "site0", 6), ("site0", "site1", 9), ("site1", "site0", 9), ("site1", "site1", 6),
    ]  # fmt: skip
    assert [span.figure.bandwidth for span in found] == [1e9, 1e7, 1e7, 1e9]
    assert FAR <= found[1].figure.round_trip <= 1.4 * FAR


@pytest.mark.parametrize("spec", ["two-level:between=complete", "adaptive"])
def test_topologies_take_measured_links(spec: str) -> None:
    """Who knows the links builds what who was told the sites does."""
    members, place = canonical(6), [0, 1, 0, 1, 0, 1]
    topology = make(spec)
    given = topology.given(surveyed(members, said(members, place)))
    assert topology.measured and given != topology
    crossing = [sum(place[i] != place[j] for i, row in enumerate(given.whole(members, t).rows) for j in row) for t in range(8)]
    assert 0 < sum(map(bool, crossing)) < 4
    assert not make("ring").measured and make("ring").given(surveyed(members, {})) == make("ring")
