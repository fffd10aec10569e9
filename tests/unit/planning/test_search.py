"""The search, and `starlings plan`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from p2p.cli import app
from p2p.errors import ConfigError
from p2p.planning.model import Prediction, predict
from p2p.planning.search import Offer, Plan, Row, candidates, pareto, plan, row
from p2p.sim.pool import simulate_all
from p2p.sim.scenario import Scenario
from p2p.sim.trial import Result

SMALL: dict[str, Any] = {
    "nodes": [2, 4],
    "topology": ["ring", "complete"],
    "until": "loss=0.05,time=2min",
    "model-size": "20MB",
}


def made(seconds: float, cost: float, nbytes: float) -> Row:
    return Row(Scenario(), Prediction(seconds, 1.0, nbytes), seconds, cost, nbytes)


def in_turn(runs: Sequence[Scenario]) -> list[Result]:
    return simulate_all(runs, jobs=1)


def test_the_front_has_what_nothing_else_beats() -> None:
    figures = [(3, 1, 9), (1, 3, 9), (2, 2, 9), (3, 3, 9), (9, 9, 1), (1, 3, 10), (2, 2, 9)]
    front = pareto([made(*one) for one in figures])
    assert [(one.seconds, one.cost, one.nbytes) for one in front] == [(1, 3, 9), (2, 2, 9), (3, 1, 9), (9, 9, 1)]


@pytest.mark.parametrize(
    ("algorithm", "offer", "seconds", "cost"),
    [
        ("async", Offer(price=36.0), 50.0, 4.0),  # twice the fewest nodes: half of 100 s; 8 x 50 s at 1 cent a second
        ("async", Offer(price=36.0, scaling=0.0), 100.0, 8.0),
        ("async", Offer(price=36.0, preemptions=6.0), 55.0, 4.4),  # every 600 s a node is away for 60 s
        ("gossip", Offer(price=36.0, preemptions=6.0), 50 * (1 + 140 / 600), 4 * (1 + 140 / 600)),  # and all wait 80 s for it
    ],
)
def test_what_a_prediction_costs(algorithm: str, offer: Offer, seconds: float, cost: float) -> None:
    one = row(Scenario(nodes=8, algorithm=algorithm), Prediction(100.0, 10.0, 800.0), offer, fewest=4)
    assert (one.seconds, one.cost) == (pytest.approx(seconds), pytest.approx(cost))
    assert one.nbytes == (800.0 if offer.scaling == 0 else 400.0)


def test_what_is_put_first_was_simulated_and_no_way_is_expected_to_take_less() -> None:
    settings = SMALL | {"codec": "raw"}
    found = plan(settings, Offer(scaling=0.0), in_turn)
    every, _ = candidates(settings)
    assert found.tried == len(every) == 2 * 2 * 12
    assert found.front[0] in found.probes
    assert found.front[0].seconds == found.front[0].simulated
    rest = set(every) - {one.scenario for one in found.probes}
    assert found.front[0].seconds <= min(predict(one).seconds for one in rest)
    assert all(one.error is not None and abs(one.error) < 0.2 for one in found.probes)


def test_where_the_simulator_says_otherwise_it_is_believed() -> None:
    settings = SMALL | {"nodes": 4, "topology": "ring", "codec": "raw"}
    every, _ = candidates(settings)
    best = min(every, key=lambda one: predict(one).seconds)
    asked: list[Scenario] = []

    def doubts(runs: Sequence[Scenario]) -> list[Result]:
        """What the model puts first takes ten times as long; it is right about all others."""
        asked.extend(runs)
        times = [predict(run).seconds * (10 if run == best else 1) for run in runs]
        return [cast(Result, SimpleNamespace(scenario=run, reached=time)) for run, time in zip(runs, times, strict=True)]

    found = plan(settings, Offer(scaling=0.0), doubts)
    assert best in asked
    assert len(asked) == len(set(asked)) == len(found.probes)
    assert found.front[0].scenario == min(set(every) - {best}, key=lambda one: predict(one).seconds)


def test_a_codec_is_searched_for() -> None:
    found = plan(SMALL | {"lan": "1gbit,1ms"}, verify=lambda runs: [])
    assert found.front[0].scenario.codec == "bfloat16"
    assert found.front[0].choice["codec"] == "bfloat16"


def test_it_is_the_best_by_brute_force_on_the_simulator_too() -> None:
    settings = SMALL | {
        "nodes": 4,
        "topology": "ring",
        "until": "loss=0.2,time=1min",
        "algorithm": ["async", "gossip:deadline=off"],
        "codec": "raw",
        "straggler": "1x3",
    }
    found = plan(settings, verify=lambda runs: [])
    every, _ = candidates(settings)
    times = {run.scenario: run.reached or float("inf") for run in in_turn(every)}
    assert times[found.front[0].scenario] <= 1.05 * min(times.values())


def test_what_does_not_go_together_is_left_out_with_its_reason() -> None:
    found = plan(SMALL | {"nodes": 6, "topology": ["hypercube", "complete"]}, verify=lambda runs: [])
    assert {one.scenario.topology for one in found.front} == {"complete"}
    assert "4 or 8 would do" in found.refused[0]
    assert isinstance(found, Plan)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"until": "loss=1e-9,steps=3"}, "reaches the target"),
        ({"topology": "rign"}, "did you mean ring"),
        ({"algorithm": "all-reduce"}, "no model"),
    ],
)
def test_what_can_t_be_planned(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan(SMALL | settings, verify=lambda runs: [])


def test_an_offer_that_can_t_be() -> None:
    with pytest.raises(ConfigError, match="scaling is 1 at most"):
        Offer(scaling=2.0)


def test_the_command_gives_rows_that_simulate_and_launch_take() -> None:
    words = (
        "plan -n 2 -n 4 --topology ring --algorithm async --codec raw --until loss=0.05,time=2min --model-size 20MB --jobs 1"
    )
    shown = CliRunner().invoke(app, words.split(), catch_exceptions=False).output
    assert "starlings launch -n 4 --topology ring --algorithm async --codec raw SCRIPT" in shown
    line = next(line for line in shown.splitlines() if "starlings simulate" in line)
    again = CliRunner().invoke(app, [*line.split()[1:], "--json"], catch_exceptions=False)
    (run,) = json.loads(again.output)
    front = json.loads(CliRunner().invoke(app, [*words.split(), "--json"], catch_exceptions=False).output)["front"]
    assert front[0]["simulated"] == run["time_to_target"]
