"""One scenario, run and watched."""

from __future__ import annotations

import json
from typing import Any

import pytest

from p2p.errors import ConfigError
from p2p.sim.reading import scenarios
from p2p.sim.trial import LOOKS, Look, Result, check, simulate


def run(**settings: Any) -> Result:
    (scenario,) = scenarios({"nodes": 4, "workload": "consensus", "model-size": "1MB", **settings})
    return simulate(scenario)


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    found = [run(seed=seed, variation=0.3, until="steps=10").as_dict() for seed in (0, 0, 1)]
    assert found[0] == found[1]
    assert found[0]["looks"] != found[2]["looks"]


def test_it_ends_at_its_target_and_says_when() -> None:
    result = run(algorithm="gossip", variation=0, until="loss=0.001,steps=100")
    assert result.reached == result.seconds == result.last.time
    assert result.last.loss <= 0.001 < result.looks[-2].loss
    assert max(result.steps) <= 4  # exact after log2 4 rounds
    assert result.complete


def test_a_target_that_is_never_reached() -> None:
    result = run(algorithm="local:period=1000", until="loss=0.5,time=3s")
    assert (result.reached, result.last.loss) == (None, 1.0)
    assert result.seconds == pytest.approx(3.0)


@pytest.mark.parametrize("workload", ["quadratic", "digits"])
def test_what_learns_gets_better(workload: str) -> None:
    result = run(workload=workload, split="shuffled", until="steps=40")
    assert result.last.loss < 0.4 * result.looks[0].loss
    assert (result.last.accuracy is not None) == (workload == "digits")


def test_all_reduce_is_a_choice_and_has_no_topology() -> None:
    result = run(algorithm="all-reduce", workload="quadratic", until="steps=20")
    assert result.steps == (20,) * 4
    assert result.scenario.choice == "all-reduce"
    assert result.last.distance == pytest.approx(0, abs=1e-12)


def test_a_straggler_contributes_less_and_makes_only_the_synchronous_wait() -> None:
    free = run(straggler="1x5", until="time=15s")
    assert free.steps[0] * 5 == pytest.approx(free.steps[1], abs=6)
    assert free.contribution == pytest.approx([1 / 16, 5 / 16, 5 / 16, 5 / 16], abs=0.02)
    assert sum(free.contribution) == pytest.approx(1)
    assert free.waiting == 0
    bound = run(straggler="1x5", algorithm="gossip:deadline=off", until="time=15s")
    assert bound.waiting > 0.5
    assert bound.rate == pytest.approx(1 / 0.75, rel=0.1)


def test_bytes_by_kind_of_line() -> None:
    one = run(algorithm="gossip", until="steps=10")
    assert (one.inside, one.between) == (pytest.approx(10 * 4 * 1e6, rel=0.02), 0.0)  # a model from each node in each round
    two = run(algorithm="gossip", topology="ring", sites=4, until="steps=10")
    assert (two.inside, two.between) == (0.0, pytest.approx(10 * 8 * 1e6, rel=0.02))


@pytest.mark.parametrize(("codec", "share"), [("bfloat16", 1 / 2), ("int8", 0.254)])
@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_a_codec_takes_as_many_bytes_as_it_does_of_a_real_model(algorithm: str, codec: str, share: float) -> None:
    plain, coded = (run(algorithm=algorithm, codec=name, until="steps=20", variation=0) for name in ("raw", codec))
    assert coded.inside == pytest.approx(share * plain.inside, rel=0.02)


def test_faults_strike() -> None:
    result = run(fault="kill:3@1s,join@2s,stall:1@100s+1s", until="time=5s")
    assert len(result.steps) == 5
    assert result.steps[3] < result.steps[0]
    assert len(result.faults) == 2  # the last one would have come after the end


def test_long_runs_are_looked_at_less_often() -> None:
    result = run(nodes=2, algorithm="all-reduce", **{"step-time": "10ms"}, until="time=20s")
    assert LOOKS / 3 < len(result.looks) <= LOOKS + 2  # of 2,000 step times
    assert result.last.time == pytest.approx(20.0)


def test_a_watcher_sees_each_look_and_may_stop_the_run() -> None:
    seen: list[Look] = []
    (scenario,) = scenarios({"nodes": 4, "workload": "consensus", "until": "time=1h"})
    result = simulate(scenario, lambda look: seen.append(look) or len(seen) == 5)  # type: ignore[func-returns-value]
    assert not result.complete
    assert list(result.looks) == seen
    assert result.seconds == pytest.approx(4 * 0.15)


def test_it_is_json() -> None:
    found = json.loads(json.dumps(run(until="steps=3").as_dict(), allow_nan=False))
    assert found["bytes"].keys() == {"lan", "wan"}
    assert len(found["contribution"]) == 4


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"topology": "rign"}, "did you mean ring"),
        ({"algorithm": "asinc"}, "did you mean async"),
        ({"topology": "hypercube", "nodes": 6}, "4 or 8 would do"),
        ({"algorithm": "d2"}, "use --topology"),
        ({"codec": "int9"}, "there are raw"),
        ({"codec": "auto", "algorithm": "gossip"}, "pushes take codecs"),
        ({"algorithm": "all-reduce:backward=2"}, "a share from 0 to 1"),
        ({"algorithm": "parameter-server:sync=perhaps"}, "sync must be bool"),
    ],
)
def test_names_are_checked_before_anything_runs(settings: dict[str, Any], says: str) -> None:
    (scenario,) = scenarios(settings)
    with pytest.raises(ConfigError, match=says):
        check(scenario)
