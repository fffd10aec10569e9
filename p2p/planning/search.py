"""Which topology, algorithm, period, codec and number of nodes: all are tried on the model, the best ones on the simulator.

    offer = Offer(price=2.5, preemptions=0.05)
    found = plan({"nodes": [8, 16], "wan": "100mbit,40ms", "sites": 2, "until": "loss=0.05,time=1h"}, offer)

The stand-in for learning is a quadratic for each node, with minima far apart (unlike data). How much sooner n nodes are there
than fewer, each with as much work a step, is an assumption: `Offer.scaling`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from p2p.errors import ConfigError
from p2p.planning.model import MODELLED, Prediction, predict
from p2p.sim.pool import simulate_all
from p2p.sim.reading import scenarios
from p2p.sim.scenario import Scenario
from p2p.sim.trial import Result, check

TOPOLOGIES = ("one-peer-exponential", "base:k=1", "ring", "regular:degree=4", "complete")
SITED = ("two-level:inside=complete,every=8", "adaptive")
ALGORITHMS = ("async", "gossip:deadline=off", "gossip:deadline=off,overlap=yes")
PERIODS = (1, 2, 4, 8)
CODECS = ("raw", "bfloat16")
PROBES = 4
"""Rows simulated at once."""
TURNS = 3
"""So often at most: what the model puts nearly as soon as the best is simulated, too."""
TRUST = 0.2
"""A row may take this share less than the model says."""
SUSPICION = 10.0
"""Seconds for which a synchronous round may wait for a node that is gone: MembershipConfig.suspicion_floor."""
CANDIDATES_MAX = 2000


@dataclass(frozen=True, slots=True)
class Offer:
    """What machines cost, and how often they are taken away."""

    price: float = 1.0
    """Of one node for an hour."""
    preemptions: float = 0.0
    """Of one node in an hour."""
    recovery: float = 60.0
    """Seconds until a node that was taken away is replaced."""
    scaling: float = 1.0
    """n times the nodes need n ** -scaling of the steps. 1 where the noise of single batches is what takes long (Lian et al.,
    2017), 0 where it is not."""

    def __post_init__(self) -> None:
        if not (0 <= self.price < 1e6 and 0 <= self.preemptions < 1e3 and 0 <= self.recovery < 1e6 and 0 <= self.scaling <= 1):
            raise ConfigError(f"{self} can't be: none of it is negative, and scaling is 1 at most")


@dataclass(frozen=True)
class Row:
    """One way to do it. Seconds and cost are expected ones, preemptions included; bytes are those of all nodes."""

    scenario: Scenario
    prediction: Prediction
    seconds: float
    cost: float
    nbytes: float
    simulated: float | None = None
    """Seconds to the target on the simulator, without preemptions and scaling; `prediction.seconds` is the model's."""

    @property
    def error(self) -> float | None:
        """The model's, as a share of what was simulated; None where nothing was."""
        return None if self.simulated is None else self.prediction.seconds / self.simulated - 1

    def corrected(self, simulated: float) -> Row:
        """With the simulator's time in place of the model's."""
        share = simulated / self.prediction.seconds
        return replace(self, seconds=self.seconds * share, cost=self.cost * share, simulated=simulated)

    @property
    def choice(self) -> dict[str, Any]:
        """The settings that were searched for, as `scenarios` and `launch` take them."""
        one = self.scenario
        return {"nodes": one.nodes, "topology": one.topology, "algorithm": one.algorithm, "codec": one.codec}

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self.choice | {
            "seconds": self.seconds, "cost": self.cost, "bytes": self.nbytes,
            "model": self.prediction.seconds, "simulated": self.simulated, "error": self.error,
        }  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """`front`: nothing else is better in all of time, cost and bytes. `probes`: rows that were simulated as well."""

    front: tuple[Row, ...]
    probes: tuple[Row, ...]
    tried: int
    refused: tuple[str, ...]
    """Topologies that can't take the number of nodes, and the like."""


def plan(
    settings: Mapping[str, Any], offer: Offer = Offer(), verify: Callable[[Sequence[Scenario]], list[Result]] = simulate_all
) -> Plan:  # fmt: skip
    """Settings are those of a scenario; nodes, topology, algorithm and codec may be lists, and what is missing is searched.

    Raises ConfigError where nothing reaches the target.
    """
    found, refused = candidates(settings)
    fewest = min(scenario.nodes for scenario in found)
    rows = {scenario: row(scenario, predict(scenario), offer, fewest) for scenario in found}
    for _ in range(TURNS):
        fresh = [one.scenario for one in _probes(rows.values())]
        for run in verify(fresh) if fresh else ():
            rows[run.scenario] = rows[run.scenario].corrected(float("inf") if run.reached is None else run.reached)
    probes = tuple(one for one in rows.values() if one.simulated is not None)
    return Plan(tuple(_front(rows.values())), probes, len(rows), tuple(refused))


def _front(rows: Collection[Row]) -> list[Row]:
    front = pareto([one for one in rows if one.seconds < float("inf")])
    if not front:
        raise ConfigError(f"none of {len(rows)} ways reaches the target; give until a larger loss, or more time")
    return front


def candidates(settings: Mapping[str, Any]) -> tuple[list[Scenario], list[str]]:
    """All that go together, and why others don't."""
    given = {name.replace("_", "-"): value for name, value in settings.items()}
    given.setdefault("workload", "quadratic")
    sited = int(given.get("sites", 1)) > 1
    nodes = _several(given.pop("nodes", 8))
    topologies = _several(given.pop("topology", TOPOLOGIES + (SITED if sited else ())))
    algorithms = _several(given.pop("algorithm", [_every(name, period) for name in ALGORITHMS for period in PERIODS]))
    codecs = _several(given.pop("codec", CODECS))
    found: list[Scenario] = []
    refused: dict[str, None] = {}
    for n, graph, algorithm, codec in product(nodes, topologies, algorithms, codecs):
        (scenario,) = scenarios(given | {"nodes": n, "topology": graph, "algorithm": algorithm, "codec": codec})
        try:
            check(scenario)
        except ConfigError as error:
            refused[str(error)] = None
            continue
        found.append(scenario)
    if not found:
        raise ConfigError(next(iter(refused)))
    if len(found) > CANDIDATES_MAX:
        raise ConfigError(
            f"{len(found)} ways are more than {CANDIDATES_MAX}; name fewer topologies, algorithms, codecs or nodes"
        )
    return found, [*refused]


def row(scenario: Scenario, prediction: Prediction, offer: Offer, fewest: int) -> Row:
    """What a prediction costs on these machines."""
    scaled = (fewest / scenario.nodes) ** offer.scaling
    waits = 0.0 if scenario.algorithm.startswith("async") else SUSPICION * scenario.nodes
    lost = offer.preemptions / 3600 * (offer.recovery + waits)
    seconds = prediction.seconds * scaled * (1 + lost)
    return Row(scenario, prediction, seconds, seconds / 3600 * scenario.nodes * offer.price, prediction.nbytes * scaled)


def pareto(rows: Sequence[Row]) -> list[Row]:
    """Those to which no other is at least equal in time, cost and bytes and better in one; by time."""
    front: list[Row] = []
    for one in sorted(rows, key=_figures):
        if not any(all(a <= b for a, b in zip(_figures(other), _figures(one), strict=True)) for other in front):
            front.append(one)
    return front


def _figures(one: Row) -> tuple[float, float, float]:
    return one.seconds, one.cost, one.nbytes


def _probes(rows: Collection[Row]) -> list[Row]:
    """What to simulate next: the soonest, the cheapest, the one with the fewest bytes, and what may be sooner than all."""
    front = _front(rows)
    best = [min(front, key=lambda one, number=number: _figures(one)[number]) for number in range(3)]  # type: ignore[misc]
    doubtful = sorted((one for one in rows if one.seconds * (1 - TRUST) < best[0].seconds), key=_figures)
    return list({id(one): one for one in (*best, *doubtful) if one.simulated is None}.values())[:PROBES]


def _every(algorithm: str, period: int) -> str:
    if period == 1:
        return algorithm
    return f"{algorithm}{',' if ':' in algorithm else ':'}period={period}"


def _several(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


__all__ = ["MODELLED", "Offer", "Plan", "Row", "plan"]
