"""The launcher with nodes that keep its contract and train nothing: files, codes, and how everything ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "scripts" / "launch.py"
NODE = str(Path(__file__).parent / "nodes" / "node.py")
DEADLINE = 60.0
ENDED = 2 * 5.0
"""The promise is 5 s; a machine that is busy with something else is granted twice that."""


def until(true: Callable[[], Any], what: str, deadline: float = DEADLINE) -> None:
    end = time.monotonic() + deadline
    while not true():
        assert time.monotonic() < end, f"not within {deadline:g} s: {what}"
        time.sleep(0.02)


def read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Run:
    """One run of the command, `n` nodes of the stand-in script."""

    def __init__(self, folder: Path, *arguments: str, n: int = 3) -> None:
        self.folder = folder
        command = [
            sys.executable,
            str(ROOT / "scripts" / "launch.py"),
            "-n",
            str(n),
            "--run-dir",
            str(folder),
            NODE,
            *arguments,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    @property
    def nodes(self) -> list[dict[str, Any]]:
        return read(self.folder / "nodes.json") or []

    @property
    def summary(self) -> dict[str, Any]:
        return read(self.folder / "summary.json")

    def wait_for_all(self, n: int = 3) -> list[int]:
        until(lambda: len(self.nodes) == n, "all nodes started")
        return [node["pid"] for node in self.nodes]

    def end(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, output


@contextmanager
def running(folder: Path, *arguments: str, n: int = 3) -> Iterator[Run]:
    run = Run(folder, *arguments, n=n)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.kill()
        run.process.communicate()


def helpers(folder: Path) -> list[int]:
    """The processes that the stubborn nodes started, as a data loader's workers are."""
    return [int(path.read_text()) for path in folder.glob("helper-*")]


def test_a_run_leaves_its_files_and_its_summary(tmp_path: Path) -> None:
    with running(tmp_path, "train") as run:
        code, output = run.end()
    assert code == 0, output
    assert {f"{stem}-{i}.{end}" for i in range(3) for stem, end in (("node", "log"), ("events", "jsonl"))} < {
        path.name for path in tmp_path.iterdir()
    }
    assert (tmp_path / "swarm.secret").stat().st_mode & 0o777 == 0o600
    secret = (tmp_path / "swarm.secret").read_text().strip()
    assert secret not in output
    assert f"starlings join tcp://127.0.0.1:7000 --secret-file {tmp_path}/swarm.secret {NODE} train" in output
    assert [(node["index"], node["id"], node["address"]) for node in run.nodes] == [
        (i, str(i) * 32, f"tcp://127.0.0.1:700{i}") for i in range(3)
    ]
    assert [node["accuracy"] for node in (entry["training"] for entry in run.summary["nodes"])] == [0.5, 0.6, 0.7]
    assert [(entry["exit_code"], entry["steps"], entry["sent"]) for entry in run.summary["nodes"]] == [(0, 3, 300)] * 3
    assert run.summary["average"] == {"accuracy": 0.99}
    assert "node 2 | hello from 2" in output
    assert "0.99" in output.splitlines()[-2]


def test_a_failing_node_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    with running(tmp_path, "fail", "1") as run:
        code, output = run.end()
    assert code == 1
    assert f"node 1 (1111111111) failed: exit code 1; the end of {tmp_path}/node-1.log:" in output
    assert "    ValueError: a loss that is not a number" in output
    assert "zygote.py" not in output, "frames of the launcher in the script's traceback"
    assert [entry["exit_code"] for entry in run.summary["nodes"]] == [0, 1, 0]


def test_a_node_that_never_came_in_ends_the_run(tmp_path: Path) -> None:
    with running(tmp_path, "early", "1") as run:
        code, output = run.end()
    assert code == 1
    assert "node 1 failed: exit code 1" in output
    assert "the others are ended" in output
    assert "failed" not in output.split("the others are ended")[1]


def test_an_error_raised_on_purpose_is_one_line(tmp_path: Path) -> None:
    with running(tmp_path, "refused", "0", n=1) as run:
        code, _ = run.end()
    assert code == 1
    assert (tmp_path / "node-0.log").read_text().splitlines()[1:] == ["ContractError: another model"]


def test_a_killed_node_gives_its_signal_as_the_code(tmp_path: Path) -> None:
    with running(tmp_path, "wait") as run:
        pids = run.wait_for_all()
        os.kill(pids[1], signal.SIGKILL)
        until(lambda: not alive(pids[1]), "the node is dead")
        assert alive(pids[0])
        assert alive(pids[2])
        (tmp_path / "go-on").touch()
        code, output = run.end()
    assert code == 128 + signal.SIGKILL
    assert "node 1 (1111111111) failed: killed by SIGKILL" in output
    assert [entry["exit_code"] for entry in run.summary["nodes"]] == [0, -9, 0]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_ends_everything(tmp_path: Path, sent: signal.Signals) -> None:
    with running(tmp_path, "wait") as run:
        pids = run.wait_for_all()
        began = time.monotonic()
        run.process.send_signal(sent)
        code, _ = run.end()
    assert code == 128 + sent
    assert time.monotonic() - began < ENDED
    assert not [pid for pid in pids if alive(pid)]
    assert [entry["exit_code"] for entry in run.summary["nodes"]] == [-signal.SIGINT] * 3


def test_nodes_that_do_not_listen_are_killed_with_all_they_started(tmp_path: Path) -> None:
    with running(tmp_path, "stubborn") as run:
        pids = run.wait_for_all()
        os.kill(pids[0], signal.SIGSTOP)
        until(lambda: len(helpers(tmp_path)) == 3, "helpers started")
        began = time.monotonic()
        run.process.send_signal(signal.SIGINT)
        code, _ = run.end()
    assert code == 130
    assert time.monotonic() - began < ENDED
    until(lambda: not any(map(alive, pids + helpers(tmp_path))), "all are dead", 2)


def test_asking_twice_ends_it_too(tmp_path: Path) -> None:
    with running(tmp_path, "stubborn") as run:
        run.wait_for_all()
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        run.process.send_signal(signal.SIGINT)
        assert run.end()[0] == 130


def test_a_signal_during_the_imports_ends_the_run(tmp_path: Path) -> None:
    with running(tmp_path, "wait") as run:
        until(lambda: (tmp_path / "swarm.secret").exists(), "the launcher is past its checks")
        until(lambda: children(run.process.pid), "the zygote started")
        zygote = children(run.process.pid)
        run.process.send_signal(signal.SIGINT)
        assert run.end()[0] in (130, -signal.SIGINT)
    until(lambda: not any(map(alive, zygote)), "no orphan", 2)


def test_no_node_outlives_a_killed_launcher(tmp_path: Path) -> None:
    with running(tmp_path, "stubborn") as run:
        pids = run.wait_for_all() + children(run.process.pid)
        assert len(pids) == 4
        os.kill(pids[0], signal.SIGSTOP)
        run.process.kill()
        until(lambda: not any(map(alive, pids)), "no orphan", 5)
        for pid in helpers(tmp_path):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []
