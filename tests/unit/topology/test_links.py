"""Links, sites, and the topologies that look at them."""

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology import Links, Member, Mixing, SpecError, Topology, TopologyError, canonical, infer_sites, make, with_sites
from topology.convergence import rounds_to, seconds_to
from topology.families.adaptive import Adaptive, candidates, grown
from topology.families.two_level import carried
from topology.links import RUNG, load, settled

PAYLOAD = 100e6


def test_the_time_of_a_round_by_hand() -> None:
    """Two sites of two, LAN 1000 B/s, WAN 10 B/s, 100 bytes: the uplink is shared, cards are not slowed by it."""
    members = (Member("a", "x"), Member("b", "x"), Member("c", "y"), Member("d", "y"))
    links = replace(Links.by_site(members, lan=1000, wan=10), round_trip=((0.2,) * 4,) * 4)
    inside = load(Mixing.undirected(4, [(0, 1), (2, 3)]), members, links, 100)
    assert (inside.seconds, inside.sent) == (pytest.approx(0.1 + 0.1), 100)
    one = load(Mixing.undirected(4, [(0, 2)]), members, links, 100)
    assert (one.seconds, one.busiest) == (pytest.approx(10 + 0.1), "c to a")
    both = load(Mixing.undirected(4, [(0, 2), (1, 3)]), members, links, 100)
    assert (both.seconds, both.busiest) == (pytest.approx(20 + 0.1), "from x")
    all_of_them = load(make("complete").whole(members, 0), members, links, 100)
    assert (all_of_them.seconds, all_of_them.sent) == (pytest.approx(40 + 0.1), 300)
    assert load(Mixing.directed(4, {}), members, links, 100).seconds == 0


def test_a_slow_card_counts_what_all_its_partners_take() -> None:
    members = canonical(4)
    rates = tuple(tuple(0.0 if i == j else 50.0 if i == 0 else 100.0 for j in range(4)) for i in range(4))
    links = Links(tuple(m.id for m in members), rates, ((0.0,) * 4,) * 4)
    star = load(make("star").whole(members, 0), members, links, 100)
    assert (star.seconds, star.busiest) == (pytest.approx(6), "from m0")


def test_what_nobody_has_measured_counts_as_the_slowest() -> None:
    links = Links(("a", "b"), ((0, 5), (7, 0)), ((0, 0.1), (0.2, 0)), version=3).among((Member("b"), Member("n")))
    assert (links.bandwidth[0][1], links.bandwidth[1][0]) == (5, 5)
    assert links.round_trip[0][1] == 0.2
    assert links.version == 3


@pytest.mark.parametrize(
    ("bandwidth", "message"),
    [(((0, 1),), "2 x 2"), (((0, 0), (1, 0)), "from a to b is 0"), (((0, math.nan), (1, 0)), "from a to b is nan")],
)
def test_wrong_tables_are_explained(bandwidth: tuple, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Links(("a", "b"), bandwidth, ((0, 1), (1, 0)))


def test_published_values_do_not_flap() -> None:
    first = settled(100.0)
    assert math.log(first, RUNG) == pytest.approx(round(math.log(first, RUNG)))
    for jitter in (0.85, 0.95, 1.05, 1.15):
        assert settled(first * jitter, first) == first
    assert settled(first * 1.5, first) > first
    edge = first * RUNG**0.5
    assert settled(edge * 1.001, settled(edge * 0.999)) == settled(edge * 0.999)


def test_links_are_a_new_version_only_when_something_moved() -> None:
    def tables(rate: float) -> tuple:
        return ((0, rate), (rate, 0)), ((0, 0.01), (0.01, 0))

    first = Links.published(("a", "b"), *tables(1e6))
    assert first.version == 1
    assert Links.published(("a", "b"), *tables(1.1e6), first) is first
    second = Links.published(("a", "b"), *tables(3e6), first)
    assert second.version == 2
    assert second.bandwidth[0][1] == pytest.approx(3e6, rel=0.2)


def test_sites_from_round_trips() -> None:
    near, far = 0.0004, 0.03
    place = [0, 1, 0, 2, 1, 0]
    table = [[near if a == b else far * (1 + a + b) / 3 for b in place] for a in place]
    assert infer_sites(table) == place
    assert infer_sites([[near * (1 + (i + j) % 2) for j in range(5)] for i in range(5)]) == [0] * 5
    members = canonical(6)
    links = Links(tuple(m.id for m in members), ((1.0,) * 6,) * 6, tuple(map(tuple, table)))
    assert [m.site for m in with_sites(members, links)] == [f"site{k}" for k in place]
    assert with_sites(canonical(6, 2), links) == canonical(6, 2)


def consensus(spec: str, members: tuple[Member, ...], links: Links) -> float:
    return seconds_to(make(spec), members, links, PAYLOAD)


def test_on_three_sites_two_levels_and_adaptive_are_three_times_sooner() -> None:
    members = canonical(16, 3)
    links = Links.by_site(members)
    best = min(consensus(spec, members, links) for spec in ("ring", "one-peer-exponential"))
    two_level = consensus("two-level:inside=complete,between=complete,every=8", members, links)
    adaptive = seconds_to(Adaptive(links=links), members, links, PAYLOAD)
    assert two_level < best / 3
    assert adaptive < best / 3
    assert adaptive <= two_level


@pytest.mark.parametrize("n", [5, 8, 12, 16, 25])
def test_on_an_even_network_adaptive_is_as_good_as_the_best(n: int) -> None:
    members = canonical(n)
    links = Links.by_site(members)
    best = min(consensus(spec, members, links) for spec in ("ring", "torus", "one-peer-exponential", "base"))
    assert seconds_to(Adaptive(links=links), members, links, PAYLOAD) <= 1.1 * best


def uneven(n: int, seed: int) -> Links:
    rng = np.random.default_rng(seed)
    rates = rng.choice([1e6, 1e7, 1e8, 1e9], size=(n, n))
    np.fill_diagonal(rates, 0)
    ids = tuple(m.id for m in canonical(n))
    return Links(ids, tuple(map(tuple, rates.tolist())), tuple(map(tuple, rng.uniform(0.001, 0.1, (n, n)).tolist())))


@pytest.mark.parametrize("seed", range(4))
def test_adaptive_on_uneven_links_is_the_best_candidate_and_reaches_everybody(seed: int) -> None:
    n = 10
    members, links = canonical(n), uneven(n, seed)
    chosen = Adaptive(links=links)
    assert rounds_to(chosen, members) is not None
    seconds = seconds_to(chosen, members, links, PAYLOAD)
    seen = with_sites(members, links)
    for choice in candidates(seen, links):
        assert rounds_to(choice.topology, choice.view) is not None
        assert seconds <= seconds_to(choice.topology, choice.view, links.among(choice.view), PAYLOAD) + 1e-6
    assert seconds <= min(consensus(spec, members, links) for spec in ("ring", "torus", "base", "base:k=3"))


def test_adaptive_is_the_same_for_all_who_hold_the_same_links() -> None:
    members = canonical(9)
    mine, yours = Adaptive(links=uneven(9, 1)), make("adaptive")
    assert isinstance(yours, Adaptive)
    yours = yours.given(uneven(9, 1))
    assert [mine.whole(members, t) for t in range(5)] == [yours.whole(members, t) for t in range(5)]


def test_adaptive_in_a_large_swarm_does_not_search() -> None:
    members = canonical(600, 3)
    assert make("adaptive").row(members, 4, 0) == make("two-level:inside=base,between=complete").row(members, 4, 0)
    assert make("adaptive").row(canonical(600), 1, 5) == make("base").row(canonical(600), 1, 5)


def test_a_grown_graph_takes_the_fastest_links() -> None:
    ids = tuple("abcd")
    rate = [[0, 9, 1, 1], [9, 0, 8, 1], [1, 8, 0, 7], [1, 1, 7, 0]]
    links = Links(ids, tuple(map(tuple, rate)), ((0.0,) * 4,) * 4)
    assert grown(links, 2) == [(1, 0), (2, 1), (3, 0), (3, 2)]


def test_two_levels_join_the_sites_once_a_cycle() -> None:
    members = canonical(6, 2)
    topology = make("two-level:every=4")
    crossing = [any((i < 3) != (j < 3) for i, row in enumerate(topology.whole(members, t).rows) for j in row) for t in range(8)]
    assert crossing == [False, False, True, False] * 2


def crossing(topology: Topology, members: tuple[Member, ...], cycles: int) -> list[set[tuple[str, str]]]:
    """In each cycle of four rounds, who meets whom at the other site."""
    mixings = [topology.whole(members, 4 * cycle + 2) for cycle in range(cycles)]
    return [{(members[i].id, members[j].id) for i, row in enumerate(m.rows) for j in row if i < j} for m in mixings]


def test_gateways_take_turns_and_meet_all_of_the_other_site() -> None:
    members, topology = canonical(8, 2), make("two-level:between=ring,every=4")
    met = crossing(topology, members, 16)
    counts = Counter(name for pairs in met for pair in pairs for name in pair)
    assert set(counts.values()) == {16 * 2 // 4}, "two of four in each cycle"
    assert len(set.union(*met)) == 16
    assert len(set(map(frozenset, crossing(make("two-level:every=4,rotate=false"), members, 16)))) == 1


def test_a_gateways_part_is_another_ones_in_the_next_view() -> None:
    members, topology = canonical(8, 2), make("two-level:every=4")
    for cycle, pairs in enumerate(crossing(topology, members, 8)):
        gone = min(pairs)[0]
        left = tuple(m for m in members if m.id != gone)
        after = crossing(topology, left, cycle + 1)[cycle]
        assert after and gone not in {name for pair in after for name in pair}


def test_two_levels_with_one_site_are_the_inner_topology() -> None:
    members = canonical(5)
    assert make("two-level:inside=base").whole(members, 5) == make("base").whole(members, 5)


def test_sites_that_the_inner_topology_refuses_use_the_fallback() -> None:
    topology = make("two-level:inside=hypercube")
    assert topology.whole(canonical(10, 2), 0).doubly_stochastic


def test_wrong_levels_are_refused() -> None:
    with pytest.raises(SpecError, match="only a built-in one can stand, not 'os:system'"):
        make("two-level:inside=os:system")


@given(st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_flows_never_load_a_node_above_one(sizes: list[int]) -> None:
    starts = np.cumsum([0, *sizes])
    positions = [range(a, b) for a, b in pairwise(starts)]
    total = sum(sizes)
    flows = {(s, t): Fraction(sizes[s] * sizes[t], total) for t in range(len(sizes)) for s in range(t)}
    pairs = carried(positions, flows)
    assert all(sum(met.values()) <= 1 + 1e-12 for met in pairs.values())
    for (s, t), flow in flows.items():
        between = sum(w for i in positions[s] for j, w in pairs.get(i, {}).items() if j in positions[t])
        assert between == pytest.approx(float(flow))
