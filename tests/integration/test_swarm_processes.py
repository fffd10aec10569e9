"""Nodes in processes of their own: killed, ended without a word, with workers, with a topology of the user's."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from p2p.config import TEST
from p2p.net import keys

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # each process imports torch

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "tests/integration/nodes/train.py"
LATTICE = '''
import topology
from topology import Mixing

class Lattice(topology.Topology):
    """Everybody with the next two."""

    def mixing(self, members, round):
        n = len(members)
        return Mixing.undirected(n, [(i, (i + k) % n) for i in range(n) for k in (1, 2) if (i + k) % n != i])
'''


class Running:
    """One script, and the JSON lines that it says."""

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str], folder: Path) -> None:
        base = {k: v for k, v in os.environ.items() if not k.startswith("STARLINGS_")}
        self.process = subprocess.Popen(
            [sys.executable, str(TRAIN), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**base, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "OMP_NUM_THREADS": "1", **environment},
        )

    def hear(self) -> dict[str, object]:
        """The next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        said: dict[str, object] = json.loads(line)
        return said

    def end(self, seconds: float = 120) -> tuple[list[dict[str, object]], str]:
        """What it said until it ended well, and its errors."""
        output, errors = self.process.communicate(timeout=seconds)
        assert self.process.returncode == 0, errors
        return [json.loads(line) for line in output.splitlines()], errors


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []
    keys.write_secret(tmp_path / "secret", bytes(range(32)))

    def begin(*arguments: str, **environment: str) -> Running:
        running.append(Running(arguments, {"STARLINGS_SECRET": str(tmp_path / "secret"), **environment}, tmp_path))
        return running[-1]

    yield begin
    for one in running:
        one.process.kill()
        one.process.communicate()


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_kill_9_of_one_of_three(start: Callable[..., Running], algorithm: str) -> None:
    """The founder, in the middle of training: the others go on, and no wait exceeds what the deadline allows."""
    founder = start("until-dead", STARLINGS_WAIT_FOR="3", STARLINGS_ALGORITHM=algorithm)
    address = str(founder.hear()["address"])
    others = [start("until-dead", STARLINGS_PEERS=address, STARLINGS_WAIT_FOR="3") for _ in range(2)]
    for other in others:
        other.hear()
        while other.hear()["members"] != ["alive"] * 3:
            pass
    founder.process.kill()
    for other in others:
        said, _ = other.end()
        assert said[-1]["done"] is True
        assert said[-1]["wait"] < TEST.deadline.change + 1  # type: ignore[operator]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loader_workers_touch_no_socket(start: Callable[..., Running], method: str) -> None:
    founder = start("loader", method)
    founder.hear()
    said, errors = founder.end()
    assert said == [{"sockets": [0] * 8, "own": said[-1]["own"]}]
    assert said[-1]["own"]
    assert errors == ""


def test_a_script_that_ends_without_a_word_has_left_all_the_same(start: Callable[..., Running]) -> None:
    stays = start("until-left")
    address = str(stays.hear()["address"])
    goes = start("unclosed", STARLINGS_PEERS=address)
    goes.hear()
    assert goes.end() == ([], "")
    said, _ = stays.end()
    assert said[-1]["done"] is True


def test_a_topology_of_the_users_own(start: Callable[..., Running], tmp_path: Path) -> None:
    (tmp_path / "mytopo.py").write_text(LATTICE)
    founder = start("until-left", STARLINGS_TOPOLOGY="mytopo:Lattice")
    address = str(founder.hear()["address"])
    joiner = start("unclosed", STARLINGS_TOPOLOGY="mytopo:Lattice", STARLINGS_PEERS=address)
    assert joiner.end()[1] == ""
    founder.end()
    asks = start("unclosed", STARLINGS_TOPOLOGY="mytopo:Square")
    errors = asks.process.communicate(timeout=120)[1]
    assert asks.process.returncode != 0
    assert errors.splitlines()[-1].startswith("p2p.errors.ConfigError: ")
    assert "Square" in errors.splitlines()[-1]
