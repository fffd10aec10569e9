import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from p2p import cli, live
from p2p.cli import _options_first
from p2p.config import LimitConfig
from p2p.launcher import Plan, describe
from p2p.net.messages import LinkStatus, MemberStatus, SpanStatus, Status
from p2p.rundir import NodeState, RunDirectory, Tail, last_lines
from p2p.settings import limits

ROOT = Path(__file__).resolve().parents[2]
FLAGS = {"--plain", "--help"}


@pytest.mark.parametrize(
    ("args", "places", "expected"),
    [
        (["a.py"], 1, ["a.py"]),
        (["-n", "4", "a.py", "-n", "9"], 1, ["-n", "4", "a.py", "-n", "9"]),
        (["tcp://h:1", "--secret-file", "f", "a.py", "--x"], 2, ["--secret-file", "f", "tcp://h:1", "a.py", "--x"]),
        (["tcp://h:1", "--secret-file=f", "a.py"], 2, ["--secret-file=f", "tcp://h:1", "a.py"]),
        (["tcp://h:1", "--plain", "a.py", "--plain"], 2, ["--plain", "tcp://h:1", "a.py", "--plain"]),
        (["--site", "eu", "tcp://h:1", "--plain", "a.py"], 2, ["--site", "eu", "--plain", "tcp://h:1", "a.py"]),
        (["tcp://h:1"], 2, ["tcp://h:1"]),
        (["tcp://h:1", "--site"], 2, ["--site", "tcp://h:1"]),
    ],
)
def test_options_may_stand_anywhere_before_the_script(args: list[str], places: int, expected: list[str]) -> None:
    assert _options_first(args, FLAGS, places) == expected


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text("")
    return str(path)


def starlings(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which may not import torch for what it finds wrong."""
    code = "import sys, p2p.cli\ntry: p2p.cli.main()\nfinally: print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=30)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("launch", "nowhere.py"), "starlings: there is no script 'nowhere.py': give the path of a Python file"),
        (("launch", "--topology", "rin", "SCRIPT"), "starlings: there is no topology 'rin'; did you mean ring"),
        (("launch", "--topology", "nomodule:Lattice", "SCRIPT"), "starlings: there is no module 'nomodule'"),
        (("launch", "--listen", "10.0.0.1", "SCRIPT"), "starlings: listen address '10.0.0.1': give tcp://HOST"),
        (("join", "somewhere", "SCRIPT"), "starlings: 'somewhere' is no address: tcp://host:port is expected"),
        (
            ("join", "tcp://127.0.0.1:7000", "--secret-file", "/no/secret", "SCRIPT"),
            "starlings: secret file /no/secret can't be",
        ),
        (("join", "tcp://192.0.2.1:7000", "SCRIPT"), "starlings: can't dial tcp://192.0.2.1:7000 without a secret"),
        (("status", "tcp://127.0.0.1:1"), "starlings: no answer from tcp://127.0.0.1:1 within 5 s: connection refused"),
    ],
)
def test_an_error_is_one_line_before_torch_is_imported(args: tuple[str, ...], said: str, script: str, tmp_path: Path) -> None:
    began = time.monotonic()
    done = starlings(tmp_path, *(script if arg == "SCRIPT" else arg for arg in args))
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
    assert done.stdout == "False\n"
    assert time.monotonic() - began < 15


def test_a_wrong_algorithm_names_the_nearest(script: str, tmp_path: Path) -> None:
    done = starlings(tmp_path, "launch", "--algorithm", "gosip", script)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no algorithm 'gosip'; did you mean gossip" in done.stderr


def test_a_port_in_use_is_said_before_anything_starts(script: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = starlings(tmp_path, "launch", "--port", str(port), script)
    assert done.returncode == 2
    assert done.stderr.startswith(f"starlings: can't listen on tcp://127.0.0.1:{port}: Address already in use")


def environments(run: RunDirectory, plan: Plan) -> list[dict[str, str]]:
    return [order.environment for order in plan.orders(run)]


def test_founders_find_each_other_and_wait_for_all(tmp_path: Path) -> None:
    plan = Plan("a.py", ("--x",), nodes=3, secret="s", topology="ring")
    orders = plan.orders(RunDirectory(tmp_path))
    assert [(order.index, order.script, order.arguments) for order in orders] == [(i, "a.py", ["--x"]) for i in range(3)]
    founder, second, _ = (order.environment for order in orders)
    address = founder["STARLINGS_LISTEN"]
    assert address.startswith("tcp://127.0.0.1:")
    assert int(address.rpartition(":")[2]) > 0
    assert founder["STARLINGS_PEERS"] == ""
    assert second["STARLINGS_PEERS"] == address
    assert second["STARLINGS_LISTEN"] == "tcp://127.0.0.1:0"
    assert second["STARLINGS_WAIT_FOR"] == "3"
    assert second["STARLINGS_JOIN_TIMEOUT"] == "300"
    assert second["STARLINGS_TOPOLOGY"] == "ring"
    assert second["STARLINGS_SECRET"] == os.path.abspath("s")
    assert second["STARLINGS_INDEX"] == "1"
    assert "STARLINGS_ALGORITHM" not in second


def test_limits_go_from_the_command_line_to_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(cli, "_go", lambda run, plain, **settings: given.update(settings))
    script = tmp_path / "train.py"
    script.touch()
    words = "--uplink 20mbit --downlink 30mbit --wan eu:us=50mbit --wan eu:asia=5mbit --topology two-level:every=8"
    ended = CliRunner().invoke(cli.app, ["launch", *words.split(), "--run-dir", str(tmp_path / "run"), str(script)])
    assert ended.exit_code == 0, ended.output
    (node,) = environments(RunDirectory(tmp_path), Plan(**given))
    found = limits(*(node[f"STARLINGS_{name}"] for name in ("UPLINK", "DOWNLINK", "WAN")))
    assert found == LimitConfig(2.5e6, 3.75e6, (("eu", "us", 6.25e6), ("eu", "asia", 625e3)))
    assert node["STARLINGS_TOPOLOGY"] == "two-level:every=8", "steps inside, one in eight between sites"


def test_a_founder_on_all_interfaces_is_found_on_loopback(tmp_path: Path) -> None:
    _, second = environments(RunDirectory(tmp_path), Plan("a.py", nodes=2, listen="tcp://*"))
    assert second["STARLINGS_PEERS"].startswith("tcp://127.0.0.1:")
    assert second["STARLINGS_LISTEN"] == "tcp://*:0"


def test_a_joiner_is_given_its_peers(tmp_path: Path) -> None:
    (joiner,) = environments(
        RunDirectory(tmp_path),
        Plan("a.py", peers=("tcp://h:1", "tcp://h:3"), listen="tcp://*", interface="eth1", dial_only=True, site="eu"),
    )
    assert joiner["STARLINGS_PEERS"] == "tcp://h:1,tcp://h:3"
    assert joiner["STARLINGS_LISTEN"] == "tcp://*:0"
    assert joiner["STARLINGS_SITE"] == "eu"
    assert (joiner["STARLINGS_INTERFACE"], joiner["STARLINGS_DIAL_ONLY"]) == ("eth1", "1")
    assert joiner["STARLINGS_SECRET"] == ""
    assert "STARLINGS_WAIT_FOR" not in joiner


def test_the_join_line_names_the_secrets_file_and_quotes() -> None:
    plan = Plan("my train.py", ("--lr", "0.1"), secret="runs/x/swarm.secret", topology="mine:Lattice")
    assert plan.join_line("tcp://127.0.0.1:7000") == (
        "starlings join tcp://127.0.0.1:7000 --secret-file runs/x/swarm.secret --topology mine:Lattice 'my train.py' --lr 0.1"
    )


@pytest.mark.parametrize(
    ("code", "said"), [(None, "running"), (0, "exit code 0"), (3, "exit code 3"), (-9, "killed by SIGKILL")]
)
def test_describe(code: int | None, said: str) -> None:
    assert describe(code) == said


def test_run_directories_are_new_and_latest_is_a_link(tmp_path: Path) -> None:
    first, second = RunDirectory.new(tmp_path / "runs"), RunDirectory.new(tmp_path / "runs")
    assert first.path != second.path
    assert (tmp_path / "runs" / "latest").resolve() == second.path.resolve()
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {first.path.name, second.path.name, "latest"}


def test_tail_gives_whole_new_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    tail = Tail(path)
    assert tail.lines() == []
    with path.open("a") as file:
        file.write("one\ntw")
        file.flush()
        assert tail.lines() == ["one"]
        file.write("o\nthree")
        file.flush()
        assert tail.lines() == ["two"]
    assert tail.rest() == ["three"]
    assert tail.rest() == []


def test_tail_bounds_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p2p.rundir.READ_BYTES", 10)
    tail = Tail(tmp_path / "log")
    (tmp_path / "log").write_text("x" * 25 + "\nend\n")
    assert tail.lines() == ["x" * 10]
    assert tail.rest() == ["x" * 10, "x" * 5, "end"]


def test_last_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"{i}\n" for i in range(50)))
    assert last_lines(tmp_path / "log", 3) == ["47", "48", "49"]


def test_a_node_is_what_its_events_say() -> None:
    step = '{"time":%d,"event":"step","step":%d,"partners":["aa"],"slow":["bb"],"sent":10,"received":20,"distance":0.5}'
    state = NodeState(1, pid=7)
    assert not state.joined
    assert state.follow(['{"time":100,"event":"start","id":"ab","address":"tcp://h:1","step":40}', step % (101, 41)])
    assert state.joined
    assert not state.follow(
        [
            step % (102, 42),
            '{"time":103,"event":"st',  # cut short
            '{"time":103,"event":"log","phase":"training","step":42,"loss":0.5,"accuracy":null}',
            '{"time":104,"event":"log","phase":"average","step":42,"accuracy":0.75}',
            '{"time":105,"event":"member","node":"x","before":"alive","after":"dead","reason":"silent"}',
        ]
    )
    assert state.identity() == {"index": 1, "pid": 7, "address": "tcp://h:1", "id": "ab"}
    assert state.summary() == {
        "index": 1, "id": "ab", "pid": 7, "exit_code": None, "steps": 2, "seconds": 5, "sent": 20, "received": 40,
        "training": {"loss": 0.5, "accuracy": None}, "average": {"accuracy": 0.75},
    }  # fmt: skip
    state.follow(['{"time":106,"event":"end","steps":3,"seconds":6,"sent":30,"received":60}'])
    assert (state.step, state.steps, state.sent, state.received) == (42, 3, 30, 60)
    line = live.progress(state)
    assert line == "node 1 | step 42 loss 0.5 accuracy  partners aa sent 30 bytes received 60 bytes distance 0.5"


STATUS = Status(
    "ring",
    "async",
    12,
    0.25,
    (
        MemberStatus("a" * 32, "tcp://127.0.0.1:7000", "alive", 1, "[bold]eu", False, 12, 0.125),
        MemberStatus("b" * 32, "tcp://127.0.0.1:7002", "suspect", 99, "", True, 11, 0.5),
    ),
    (LinkStatus("b" * 32, 0.0025, 1.5e6, 5e5, 0.25, 2_000_000, 3_000, 40, True),),
    (SpanStatus("[bold]eu", "us", 0.08, 1.2e7, 0.0, 9),),
)


def text(status: Status, as_json: bool, capsys: pytest.CaptureFixture[str]) -> str:
    cli._show(status, as_json)
    return capsys.readouterr().out


def test_status_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split() for line in text(STATUS, False, capsys).splitlines()]
    assert ["aaaaaaaaaa", "alive", "training", "12", "0.125", "[bold]eu", "tcp://127.0.0.1:7000"] in lines
    assert ["bbbbbbbbbb", "suspect", "99", "11", "0.5", "dials", "only"] in lines
    link = ["2.5", "ms", "1.5", "MB/s", "500.0", "kB/s", "250.0", "ms", "2.0", "MB", "3.0", "kB", "40", "bytes"]
    assert ["bbbbbbbbbb", "paused", *link] in lines
    assert ["[bold]eu", "us", "80.0", "ms", "12.0", "MB/s", "9"] in lines, "nothing stands for what is not measured"


def test_status_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(text(STATUS, True, capsys))
    assert said["members"][0]["node"] == "a" * 32
    assert (said["links"][0]["back"], said["links"][0]["queueing"]) == (5e5, 0.25)
    assert said["spans"] == [
        {"source": "[bold]eu", "target": "us", "round_trip": 0.08, "bandwidth": 1.2e7, "queueing": 0.0, "links": 9}
    ]


def test_the_summary_shows_each_node_and_the_average() -> None:
    states = [NodeState(0, code=0, id="a" * 32, steps=9, sent=1500, received=10, training={"loss": 0.5, "accuracy": 0.9},
                        average={"accuracy": 0.97}), NodeState(1, code=-9, sent=500)]  # fmt: skip
    console = Console(width=120, markup=False, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(live.summary(states, 12.5))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["0", "aaaaaa", "ok", "9", "0.5", "0.9", "1.5", "kB", "10", "bytes", "0.0"] in lines
    assert ["1", "SIGKILL", "0", "500", "bytes", "0", "bytes", "0.0"] in lines
    assert ["average", "0.97", "2.0", "kB", "10", "bytes", "12.5"] in lines
