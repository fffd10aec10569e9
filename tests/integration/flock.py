"""A swarm of real processes that tests can kill, stop, cut apart and start again; all of it ends with its `with` block."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from p2p.launcher import _free_port
from p2p.net import keys

ROOT = Path(__file__).resolve().parents[2]
WALKER = Path(__file__).parent / "nodes" / "walker.py"
LIVE = {"joining", "alive", "suspect"}


def until(true: Callable[[], Any], what: str, seconds: float) -> float:
    """Wait for it; how long it took. AssertionError after `seconds`."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


@dataclass
class Batch:
    """One zygote and the nodes forked from it."""

    zygote: subprocess.Popen[bytes]
    reader: threading.Thread
    codes: dict[int, int] = field(default_factory=dict)


class Flock:
    """Nodes by number, each with its own identity in `folder`. `pause` is a step's length; `profile` is lan or test."""

    def __init__(
        self, folder: Path, *, profile: str = "lan", pause: float = 0.05, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.folder, self.profile, self.pause, self.host = folder, profile, pause, host
        self.port = port or _free_port(f"[{host}]" if ":" in host else host)
        self.codes: dict[int, int] = {}
        self._batches: list[Batch] = []
        keys.write_secret(folder / "secret", keys.new_secret())

    def __enter__(self) -> Flock:
        return self

    def __exit__(self, *_: object) -> None:
        for batch in self._batches:
            batch.zygote.kill()  # the nodes die with it
            batch.zygote.wait()
            batch.reader.join()
            batch.zygote.stdout.close()  # type: ignore[union-attr]
        until(lambda: not any(map(alive, self.pids().values())), "no node outlives the flock", 10)

    # --- comings and goings ------------------------------------------------------------------------------------------

    def start(
        self,
        *indices: int,
        peer: str | None = None,
        host: str | None = None,
        inside: Iterable[str] = (),
        fails_at: int = -1,
        pause: float | None = None,
        **settings: str,
    ) -> None:
        """Fork these nodes; `peer` None joins node 0's address, or founds the swarm there. `settings`: environment names."""
        pause = self.pause if pause is None else pause
        for index in indices:
            for stem in ("state-{}.json", "model-{}.npy"):
                (self.folder / stem.format(index)).unlink(missing_ok=True)
            self.codes.pop(index, None)
        orders = [self._order(index, peer, host or self.host, (pause, fails_at, self.profile), settings) for index in indices]
        command = [*inside, sys.executable, "-m", "p2p.zygote", str(os.getpid())]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        zygote = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        zygote.stdin.write(json.dumps(orders).encode())  # type: ignore[union-attr]
        zygote.stdin.close()  # type: ignore[union-attr]
        reader = threading.Thread(target=self._read, args=(zygote,), name="flock-reader")
        reader.start()
        self._batches.append(Batch(zygote, reader))

    def _order(
        self, index: int, peer: str | None, host: str, arguments: Iterable[object], settings: dict[str, str]
    ) -> dict[str, Any]:
        bracketed = f"[{host}]" if ":" in host else host
        founder = f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"
        found = {
            "INDEX": str(index),
            "RUN_DIR": str(self.folder),
            "SECRET": str(self.folder / "secret"),
            "LISTEN": founder if index == 0 and peer is None else f"tcp://{bracketed}:0",
            "PEERS": peer if peer is not None else "" if index == 0 else founder,
            "JOIN_TIMEOUT": "90",
        } | settings
        return {
            "index": index,
            "script": str(WALKER),
            "arguments": list(map(str, arguments)),
            "environment": {f"STARLINGS_{name}": value for name, value in found.items()},
            "log": str(self.folder / f"node-{index}.log"),
        }

    def _read(self, zygote: subprocess.Popen[bytes]) -> None:
        for line in zygote.stdout:  # type: ignore[union-attr]
            event = json.loads(line)
            if "code" in event:
                self.codes[event["index"]] = event["code"]

    def signal(self, number: signal.Signals, *indices: int) -> None:
        pids = self.pids()
        for index in indices:
            os.kill(pids[index], number)

    def stop(self, seconds: float = 30) -> None:
        """All leave by themselves."""
        (self.folder / "stop").touch()
        until(lambda: all(index in self.codes for index in self.states()), "all have left", seconds)

    # --- what there is to see ----------------------------------------------------------------------------------------

    def state(self, index: int) -> dict[str, Any]:
        """What node `index` said last; nothing before its first word."""
        path = self.folder / f"state-{index}.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def states(self) -> dict[int, dict[str, Any]]:
        indices = sorted(int(path.stem.removeprefix("state-")) for path in self.folder.glob("state-*.json"))
        return {index: state for index in indices if (state := self.state(index))}

    def pids(self) -> dict[int, int]:
        return {index: state["pid"] for index, state in self.states().items()}

    def step(self, index: int) -> int:
        return int(self.state(index).get("step", 0))

    def views_right(self, *indices: int) -> bool:
        """Whether each of these holds exactly these for alive, and nobody else for live."""
        states = self.states()
        if not set(indices) <= set(states):
            return False
        ids = {states[index]["id"] for index in indices}
        views = [states[index]["members"] for index in indices]
        return all({n for n, s in v.items() if s in LIVE} == ids and {v[n] for n in ids} == {"alive"} for v in views)

    def wait_for_views(self, *indices: int, seconds: float = 90) -> float:
        return until(lambda: self.views_right(*indices), f"the views of {indices} are right: {self.tell(indices)}", seconds)

    def tell(self, indices: Iterable[int]) -> dict[int, Any]:
        return {index: self.state(index).get("members") for index in indices}

    def events(self, index: int) -> list[dict[str, Any]]:
        path = self.folder / f"events-{index}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = []
        for line in lines:
            with suppress(ValueError):  # the last one may be half written
                found.append(json.loads(line))
        return found

    def steps(self, index: int, begin: float = 0, end: float = float("inf")) -> list[dict[str, Any]]:
        """Step events between two moments of the wall clock."""
        return [e for e in self.events(index) if e["event"] == "step" and begin <= e["time"] < end]

    def news(self, index: int, about: str) -> list[str]:
        """How `about` stood with node `index`, one after the other."""
        return [e["after"] for e in self.events(index) if e["event"] == "member" and e["node"] == about]

    def distance(self, *indices: int) -> float:
        """Root mean square distance of these models to their mean, as last said."""
        models = np.stack([np.load(self.folder / f"model-{index}.npy") for index in indices])
        return float(np.sqrt(((models - models.mean(0)) ** 2).mean()))

    def apart(self, *halves: tuple[int, ...]) -> float:
        """Root mean square distance between the means of two halves."""
        first, second = (np.mean([np.load(self.folder / f"model-{i}.npy") for i in half], axis=0) for half in halves)
        return float(np.sqrt(((first - second) ** 2).mean()))


def alive(pid: int) -> bool:
    """Whether a process still runs; zombies do not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Halves:
    """Two network namespaces on one wire, which can be cut. Needs root on Linux."""

    HOSTS = ("10.77.0.1", "10.77.0.2")

    def __init__(self) -> None:
        self.names = tuple(f"starlings-{os.getpid()}-{side}" for side in "ab")

    @staticmethod
    def why_not() -> str:
        """Why this machine can't; empty where it can."""
        if sys.platform != "linux" or shutil.which("ip") is None:
            return "needs Linux and iproute2"
        name = f"starlings-probe-{os.getpid()}"
        if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
            return "needs root: network namespaces"
        subprocess.run(["ip", "netns", "del", name], check=True)
        return ""

    def __enter__(self) -> Halves:
        first, second = self.names
        for name in self.names:
            _ip("netns", "add", name)
        _ip("-n", first, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", second)
        for name, host in zip(self.names, self.HOSTS, strict=True):
            _ip("-n", name, "addr", "add", f"{host}/24", "dev", "wire")
            for link in ("lo", "wire"):
                _ip("-n", name, "link", "set", link, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            _ip("netns", "del", name)

    def inside(self, side: int) -> list[str]:
        return ["ip", "netns", "exec", self.names[side]]

    def cut(self) -> None:
        _ip("-n", self.names[0], "link", "set", "wire", "down")

    def heal(self) -> None:
        _ip("-n", self.names[0], "link", "set", "wire", "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
