"""What a topology costs and brings, as data: the numbers behind `starlings topology show`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from topology.base import Member, Properties, Topology
from topology.convergence import contraction, error, products, rounds_to, seconds_to
from topology.errors import TopologyError
from topology.links import LAN, WAN, Links, Load, load
from topology.measure import canonical
from topology.registry import make, spec_of

NOTHING = Properties()
ANALYZE_MAX = 1024
"""Members up to which dense matrices are reasonable."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """One topology on n members. Times are in seconds, sizes in bytes; None where it never comes or doesn't apply."""

    name: str
    n: int
    refused: str | None = None
    """Why it can't take n members; the rest is then empty."""
    remark: str | None = None
    properties: Properties = NOTHING
    contraction: float | None = None
    """||product of one period - J||, the 2-norm; over 64 rounds where there is no period."""
    rounds: int | None = None
    """To an error of epsilon."""
    degree: int = 0
    """The most partners of one node in one round, hearing or sending."""
    bytes_per_step: float = 0.0
    """Sent by the busiest node in a round, mean over a period."""
    busiest_link: str = ""
    """What sets the time of the slowest round."""
    round_time: float = 0.0
    """Mean over a period."""
    consensus_time: float | None = None
    """Until the error is below epsilon."""

    @property
    def gap(self) -> float | None:
        """The spectral gap: 1 - contraction."""
        return None if self.contraction is None else 1 - self.contraction

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**dataclasses.asdict(self), "gap": self.gap}


def analyze(
    topologies: str | Topology | Sequence[str | Topology],
    n: int = 16,
    *,
    sites: int = 1,
    lan: float = LAN,
    wan: float = WAN,
    payload: float = 100e6,
    epsilon: float = 1e-3,
    members: Sequence[Member] | None = None,
    links: Links | None = None,
) -> list[Analysis]:
    """One Analysis per topology, in order.

    n canonical members in `sites` runs, with `lan` and `wan` bytes per second inside and between sites; or the given members
    and links. `payload` is what goes over an arc in a round. Raises SpecError or TopologyError on wrong names and topologies; a
    refused n is reported in `refused`.
    """
    view = tuple(members) if members is not None else canonical(n, sites)
    if not 1 <= len(view) <= ANALYZE_MAX:
        raise TopologyError(f"analysis takes 1 to {ANALYZE_MAX} members, not {len(view)}")
    known = (links or Links.by_site(view, lan, wan)).among(view)
    wanted = [topologies] if isinstance(topologies, (str, Topology)) else topologies
    return [_analyze(make(spec), view, known, payload, epsilon) for spec in wanted]


def errors(topology: str | Topology, members: Sequence[Member], rounds: int) -> list[float]:
    """||product of the first t rounds - J|| for t = 0 .. rounds: what a plot of consensus shows."""
    start = [0.0 if len(members) == 1 else 1.0]
    return start + [error(p) for _, p in zip(range(rounds), products(make(topology), members), strict=False)]


REFERENCE = ("ring", "torus", "exponential", "one-peer-exponential", "star", "base:k=1")


def reference(sizes: Sequence[int] = (4, 8, 16, 32, 64, 6, 7, 12, 25)) -> list[list[Analysis]]:
    """The usual topologies (REFERENCE) at the usual sizes: the table of the documentation, a line per size."""
    return [analyze(REFERENCE, n) for n in sizes]


def _analyze(topology: Topology, members: Sequence[Member], links: Links, payload: float, epsilon: float) -> Analysis:
    n, name = len(members), spec_of(topology)
    if reason := topology.refuses(n):
        return Analysis(name, n, refused=reason)
    properties = topology.properties(n)
    mixings = [topology.whole(members, t) for t in range(properties.period or 16)]
    loads = [load(mixing, members, links, payload) for mixing in mixings]
    seconds = seconds_to(topology, members, links, payload, epsilon)
    return Analysis(
        name,
        n,
        remark=topology.remark(n),
        properties=properties,
        contraction=contraction(topology, members),
        rounds=rounds_to(topology, members, epsilon),
        degree=max(max(len(row.ins), len(row.outs)) for mixing in mixings for row in map(mixing.row, range(n))),
        bytes_per_step=_mean([one.sent for one in loads]),
        busiest_link=max(loads, key=_seconds).busiest,
        round_time=_mean([one.seconds for one in loads]),
        consensus_time=seconds if math.isfinite(seconds) else None,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _seconds(one: Load) -> float:
    return one.seconds


def main() -> None:
    """Prints the reference table: `python -m topology`."""
    print("n    " + "".join(f"{name:>24}" for name in REFERENCE) + "    (||W - J|| of a period, rounds to 1e-3)")
    for line in reference():
        print(f"{line[0].n:<5}" + "".join(f"{a.contraction:>16.4f} {a.rounds:>7}" for a in line))
