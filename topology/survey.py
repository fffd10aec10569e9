"""From what members say of their own links to a table of all pairs: what nobody has measured is taken from its like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low

from topology.base import Member
from topology.links import LAN, LAN_ROUND_TRIP, WAN, WAN_ROUND_TRIP, Links, Table, clustered


@dataclass(frozen=True, slots=True)
class Figure:
    """What one member says of its link to another; 0: not measured."""

    round_trip: float = 0.0
    """Seconds, of a message of a few bytes."""
    bandwidth: float = 0.0
    """Bytes a second, there."""
    queueing: float = 0.0
    """Seconds that a message of the model waits on top of the round trip, in the median."""


Survey = Mapping[str, Mapping[str, Figure]]
"""Of whom, about whom: ids."""
Arc = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Span:
    """What was measured from one site to another, or inside one: medians over `links` measured ones."""

    source: str
    target: str
    figure: Figure
    links: int


def sited(members: Sequence[Member], survey: Survey) -> tuple[Member, ...]:
    """The members as they are if one of them states a site, else with sites inferred from the round trips that are known."""
    if any(member.site for member in members):
        return tuple(members)
    pairs = [(time, max(arc), min(arc)) for arc, time in _known(members, survey, _round_trip).items()]
    labels = clustered(len(members), pairs)
    return tuple(replace(member, site=f"site{k}") for member, k in zip(members, labels, strict=True))


def surveyed(members: Sequence[Member], survey: Survey, version: int = 0) -> Links:
    """The links of all pairs. Where only the far end has measured, its way here counts for ours; where nobody has, the median
    between the two sites, else between any two, or inside any; else what `Links.by_site` assumes."""
    seen = sited(members, survey)
    return Links(
        tuple(member.id for member in members),
        _filled(seen, _known(seen, survey, lambda figure: figure.bandwidth), LAN, WAN),
        _filled(seen, _known(seen, survey, _round_trip), LAN_ROUND_TRIP, WAN_ROUND_TRIP),
        version,
    )


def spans(members: Sequence[Member], survey: Survey) -> list[Span]:
    """What was measured from each site to each, itself included, in the order of their names."""
    site = {member.id: member.site for member in sited(members, survey)}
    groups: dict[tuple[str, str], list[Figure]] = {}
    for source in sorted(site.keys() & survey.keys()):
        for target in sorted(site.keys() & survey[source].keys()):
            groups.setdefault((site[source], site[target]), []).append(survey[source][target])
    return [Span(*ends, _middle(figures), len(figures)) for ends, figures in sorted(groups.items())]


def _middle(figures: Sequence[Figure]) -> Figure:
    columns = zip(*((f.round_trip, f.bandwidth, f.queueing) for f in figures), strict=True)
    return Figure(*(median_low([value for value in column if value] or [0.0]) for column in columns))


def _round_trip(figure: Figure) -> float:
    return figure.round_trip


def _known(members: Sequence[Member], survey: Survey, of: Callable[[Figure], float]) -> dict[Arc, float]:
    """What one end has measured of each arc, or else the other."""
    at = {member.id: i for i, member in enumerate(members)}
    said = {
        (at[source], at[target]): of(figure)
        for source in at.keys() & survey.keys()
        for target, figure in survey[source].items()
        if target in at and target != source and of(figure)
    }
    return {(j, i): value for (i, j), value in said.items()} | said


def _filled(members: Sequence[Member], known: Mapping[Arc, float], inside: float, between: float) -> Table:
    """All arcs, each with the nearest thing that is known of it."""
    groups: dict[object, list[float]] = {}
    for (i, j), value in known.items():
        one, other = members[i].site, members[j].site
        groups.setdefault((one, other), []).append(value)
        groups.setdefault(one == other, []).append(value)
    middle = {key: median_low(values) for key, values in groups.items()}
    likely = {True: middle.get(True, inside), False: middle.get(False, between)}

    def cell(i: int, j: int) -> float:
        ends = members[i].site, members[j].site
        return known.get((i, j)) or middle.get(ends) or likely[ends[0] == ends[1]]

    places = range(len(members))
    return tuple(tuple(0.0 if i == j else cell(i, j) for j in places) for i in places)
