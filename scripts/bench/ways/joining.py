"""Members of a swarm that mostly wait, as on a GPU, and a joiner, the last rank, which comes and goes.

python joining.py MEGABYTES PAUSE RANK SIZE FOLDER
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from pathlib import Path

import torch
from cpu import Cpu
from serving import PATIENCE, fetch, post, serve
from torch import nn

import p2p

CALM = 1.0
"""Seconds of steps that nobody disturbs, after half as many for a joiner to leave."""
VALUE = 0.5


def network(megabytes: float, value: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Parameters of so many MB, all of one value; without gradients a step changes nothing."""
    model = nn.ParameterList([torch.full((1000, 1000), value) for _ in range(int(megabytes) // 4)])
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


class Member:
    """Steps all the while; each waits `pause` seconds first."""

    def __init__(self, megabytes: float, pause: float, secret: bytes, rank: int, folder: Path) -> None:
        model, self._optimizer = network(megabytes, VALUE)
        peers = fetch(folder, "address") if rank else ()
        local = "tcp://127.0.0.1:0"
        self.node = p2p.join(model, self._optimizer, secret=secret, peers=peers, listen=local, join_timeout=PATIENCE)
        if not rank:
            post(folder, "address", self.node.address)
        self._pause = pause
        self._steps: list[tuple[float, float]] = []
        self._stopped = threading.Event()
        self._cpu: Cpu
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def join(self) -> dict[str, float]:
        """A joiner comes."""
        self._steps = []
        self._cpu.begin()
        return {"began": time.monotonic(), "ended": time.monotonic()}

    def look(self) -> dict[str, object]:
        """What the steps took since."""
        cpu = self._cpu.spent()
        time.sleep(3 * self._pause)  # the last of them ends
        return {"steps": self._steps, "cpu": cpu}

    def rest(self) -> list[tuple[float, float]]:
        """What they take without it."""
        time.sleep(CALM / 2)
        self._steps = []
        time.sleep(CALM)
        return self._steps

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        self.node.close()

    def _train(self) -> None:
        self._cpu = Cpu()
        while not self._stopped.is_set():
            began = time.monotonic()
            time.sleep(self._pause)
            self._optimizer.step()
            self._steps.append((began, time.monotonic()))


class Joiner:
    """Comes anew for each join, with a model of its own."""

    def __init__(self, megabytes: float, secret: bytes, folder: Path) -> None:
        self._megabytes, self._secret, self._address = megabytes, secret, fetch(folder, "address")
        self._cpu = Cpu()

    def join(self) -> dict[str, float]:
        """From the call of `join`, before anything is bound or dialled, to its return, with the state applied."""
        model, optimizer = network(self._megabytes, -1.0)
        self._cpu.begin()
        began = time.monotonic()
        self.node = p2p.join(model, optimizer, secret=self._secret, peers=self._address, listen="tcp://127.0.0.1:0")
        ended = time.monotonic()
        self._spent = self._cpu.spent()
        if not all(bool((p == VALUE).all()) for p in model.parameters()):
            raise SystemExit("the joiner's model is not the members'")
        return {"began": began, "ended": ended}

    def look(self) -> dict[str, object]:
        return {"steps": [], "cpu": self._spent}

    def rest(self) -> list[tuple[float, float]]:
        """Leave."""
        self.node.close()
        return []

    def close(self) -> None:
        """It has left."""


def main() -> None:
    megabytes, pause = float(sys.argv[1]), float(sys.argv[2])
    rank, size, folder = int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5])
    torch.set_num_threads(1)
    secret = hashlib.blake2b(folder.name.encode(), digest_size=32).digest()
    joins = rank == size - 1
    one = Joiner(megabytes, secret, folder) if joins else Member(megabytes, pause, secret, rank, folder)
    serve({"join": one.join, "look": one.look, "rest": one.rest})
    one.close()


main()
