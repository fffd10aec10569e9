"""The model against the simulator."""

from __future__ import annotations

from typing import Any

import pytest

from p2p.errors import ConfigError
from p2p.planning.model import predict
from p2p.sim.reading import scenarios
from p2p.sim.scenario import Scenario
from p2p.sim.trial import simulate


def scenario(**settings: Any) -> Scenario:
    (one,) = scenarios({"nodes": 4, "workload": "quadratic", "until": "loss=0.02,time=5min", **settings})
    return one


@pytest.mark.parametrize("algorithm", ["gossip:deadline=off", "gossip:deadline=off,period=4"])
def test_rounds_of_exact_averages_are_the_simulator_s(algorithm: str) -> None:
    one = scenario(algorithm=algorithm, topology="complete", variation=0)
    found, said = simulate(one), predict(one)
    assert max(found.steps) <= said.steps <= max(found.steps) + 1  # it may look between an update and its mixing
    assert said.nbytes == pytest.approx(found.inside, rel=0.1)
    assert said.seconds == pytest.approx(found.reached, rel=0.12)


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "async"},
        {"algorithm": "async:period=4", "topology": "ring"},
        {"algorithm": "gossip:deadline=off", "topology": "ring", "variation": 0.3},
        {"algorithm": "gossip:deadline=off,overlap=yes", "lan": "5gbit,1ms"},
        {"algorithm": "gossip:deadline=off", "straggler": "1x3"},
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
)
def test_time_is_within_a_fifth_of_the_simulator_s(settings: dict[str, Any]) -> None:
    one = scenario(**settings)
    assert predict(one).seconds == pytest.approx(simulate(one).reached, rel=0.2)


def test_what_is_not_reached_in_time_never_is() -> None:
    assert predict(scenario(until="loss=0.0001,time=1s")).seconds == float("inf")
    assert predict(scenario(until="loss=0.0001,steps=3")).steps == pytest.approx(3, abs=1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"workload": "digits"}, "workload quadratic"),
        ({"until": "steps=5"}, "a loss"),
        ({"algorithm": "all-reduce"}, "no model"),
    ],
)
def test_what_it_has_no_model_of_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        predict(scenario(**settings))
