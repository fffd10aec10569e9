"""Scenarios from text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from p2p.errors import ConfigError
from p2p.net.physics import Line
from p2p.sim.faults import Cut, Disconnect, Fault, Join, Kill, Leave, Slow, Stall
from p2p.sim.reading import read, scenarios
from p2p.sim.scenario import Scenario, Straggler, Until


def one(**settings: object) -> Scenario:
    (found,) = scenarios(settings)
    return found


@pytest.mark.parametrize(
    ("setting", "text", "field", "value"),
    [
        ("nodes", "64", "nodes", 64),
        ("nodes", 64, "nodes", 64),
        ("lan", "10gbit", "lan", Line(0.0, bandwidth=1.25e9)),
        ("lan", "10gbit,0s", "lan", Line(0.0, bandwidth=1.25e9)),
        ("wan", "100mbit,40ms", "wan", Line(0.02, bandwidth=12.5e6)),
        ("model-size", "1.5MB", "model", 1.5e6),
        ("model_size", "1GB", "model", 1e9),
        ("step-time", "2min", "step", 120.0),
        ("variation", 0.3, "variation", 0.3),
        ("straggler", "1x5", "stragglers", (Straggler(1, 5.0),)),
        ("straggler", ["1x5", "2x1.5"], "stragglers", (Straggler(1, 5.0), Straggler(2, 1.5))),
        ("until", "loss=0.1,time=1h", "until", Until(loss=0.1, time=3600.0)),
        ("until", "accuracy=0.95|steps=1000", "until", Until(accuracy=0.95, steps=1000)),
        ("seed", "7", "seed", 7),
    ],
)
def test_one_value(setting: str, text: object, field: str, value: object) -> None:
    assert getattr(one(**{setting: text}), field) == value


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kill:3@60s", Kill(3, 60.0)),
        ("stall:2@30s+10s", Stall(2, 30.0, 10.0)),
        ("leave:5@2min", Leave(5, 120.0)),
        ("disconnect:1@500ms", Disconnect(1, 0.5)),
        ("slow:4x10@0s", Slow(4, 10.0, 0.0)),
        ("cut:site1@60s+20s", Cut(("site1",), 60.0, 20.0)),
        ("join@90s", Join(90.0)),
    ],
)
def test_one_fault(text: str, fault: Fault) -> None:
    assert one(fault=text, sites=2).faults == (fault,)
    assert one(fault=["join@1s", text], sites=2).faults == (Join(1.0), fault)
    assert one(fault=f"join@1s,{text}", sites=2).faults == (Join(1.0), fault)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"nodes": "0"}, "nodes: 0 is not a whole number from 1"),
    ({"nodes": True}, "nodes: True is not a whole number"),
    ({"nodes": 5000}, "at most 4096 nodes"),
    ({"sites": 9}, "8 nodes in 9 sites"),
    ({"topolgy": "ring"}, "did you mean topology"),
    ({"workload": "images"}, "there are consensus, quadratic, digits"),
    ({"split": "even"}, "there are sorted, shuffled, dirichlet"),
    ({"wan": "100"}, "wan: '100' is not a bandwidth"),
    ({"wan": "100mbit,4"}, "wan: '4' is not a time"),
    ({"model-size": 5}, "model-size: 5 is not a name"),
    ({"step-time": "0ms"}, "step-time: '0ms' is not a time"),
    ({"variation": "5"}, "from 0 to 3"),
    ({"variation": "nan"}, "variation: 'nan' is not a number"),
    ({"straggler": "5"}, "straggler: '5' is not a straggler; give how many and how slow, as 1x5"),
    ({"straggler": "9x2"}, "9 stragglers are more than 8 nodes"),
    ({"until": "loss"}, "until: 'loss' ends no run"),
    ({"until": "loss=0.1,loss=0.2"}, "each once"),
    ({"until": "steps=1.5"}, "not a whole number"),
    ({"until": "accuracy=0.9", "workload": "consensus"}, "has no accuracy"),
    ({"fault": "boom:1@3s"}, "fault: 'boom:1@3s' is no fault; give kill:3@60s"),
    ({"fault": "kill@3s"}, "is no fault"),
    ({"fault": "kill:1@3s+2s"}, "is no fault"),
    ({"fault": "stall:1@3s"}, "is no fault"),
    ({"fault": "kill:8@3s"}, "there is no node 8; the nodes are 0 to 7"),
    ({"fault": "slow:8x2@3s"}, "there is no node 8"),
    ({"fault": "cut:here@3s+1s"}, "there is no site 'here'; there are site0"),
    ({"seed": range(300)}, "not a whole number"),
    ({"seed": [*range(300)]}, "300 runs are more than 256"),
]


@pytest.mark.parametrize(("settings", "says"), WRONG, ids=lambda value: str(value)[:40])
def test_what_can_t_be_is_said_in_one_line(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        scenarios(settings)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_joiner_can_be_struck_too() -> None:
    assert one(fault="join@1s,kill:8@3s").faults == (Join(1.0), Kill(8, 3.0))


def test_each_with_each_and_what_has_no_topology_once() -> None:
    found = scenarios({"topology": ["ring", "base"], "algorithm": ["async", "all-reduce:backward=0.5"], "seed": [1, 2]})
    assert [(run.choice, run.seed) for run in found] == [
        ("async on ring", 1),
        ("async on ring", 2),
        ("all-reduce:backward=0.5", 1),
        ("all-reduce:backward=0.5", 2),
        ("async on base", 1),
        ("async on base", 2),
    ]


def test_a_file_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text('nodes = 12\nwan = "1gbit,10ms"\nsites = 3\nstraggler = ["1x5"]\nuntil = "time=1h"\nseed = [3, 4]\n')
    wan, stragglers = Line(0.005, bandwidth=1.25e8), (Straggler(1, 5.0),)
    expected = Scenario(nodes=12, wan=wan, sites=3, stragglers=stragglers, until=Until(time=3600.0), seed=3)
    assert scenarios(read(path)) == [expected, replace(expected, seed=4)]


@pytest.mark.parametrize(
    ("content", "says"), [(None, "can't read"), (b"nodes = ", "is not TOML"), (b"\xff\xfe", "is not TOML")]
)
def test_a_file_that_can_t_be_read(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "scenario.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        read(path)


def test_a_stand_in_has_as_many_messages_as_the_model() -> None:
    exchange = Scenario(model=1e6, blocks=8).config(4000).exchange
    assert (exchange.block_bytes, exchange.message_bytes) == (1000, 16777)  # four blocks of 256 KiB; one message holds them
    big = Scenario(model=1e9, blocks=8).config(4000).exchange
    assert (big.block_bytes, big.message_bytes, big.credit_max) == (504, 504, 4 * 504)
