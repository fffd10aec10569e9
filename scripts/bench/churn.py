"""What churn costs: samples a second while every ten seconds a process is killed and one comes, beside DDP under torchrun.

    python scripts/bench/churn.py                 # about 4 minutes
    python scripts/bench/churn.py --nodes 8 --every 5

Each process trains digits in steps that wait 100 ms, as if they computed, and writes down when each step ended. After a calm
while, one that has trained is killed (SIGKILL) every ten seconds. Ours: a new process is started at that moment, imports torch,
joins by the addresses of those that live, and takes their state. DDP: torchrun (elastic, one agent) sees that a worker has died
and starts all anew, which go on from a checkpoint that is written every ten steps. Samples are those of whole steps, counted
in spans of ten seconds; what DDP must do again counts, too, and nobody is killed where all are still starting. At the end the
model must be right for nine digits in ten.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from harness import HERE, ROOT, Failed, Spread, Table, Target, excused, ours, parser, publish, say, targets
from torch import nn

from p2p.sim.workloads import TRAINING, Digits, digits

BATCH, GOOD = 32, 0.9
PATIENCE = 180.0
"""Seconds until all have begun."""
WARM = 5
"""Steps of each process that count for nothing."""


class Trainers:
    """Processes that write their steps into a folder. Use it in a `with` block; subclasses say how they are started."""

    def __init__(self, nodes: int, wait: float, seed: int) -> None:
        self.nodes, self.wait = nodes, wait
        self.folder = Path(tempfile.mkdtemp(prefix="starlings-bench-"))
        self._rng = random.Random(seed)
        self._log = (self.folder / "log").open("w")
        self._processes: list[subprocess.Popen[bytes]] = []
        save_case(self.folder / "case.npz", seed)

    def start(self) -> None:
        """All of them."""
        raise NotImplementedError

    def replace(self) -> None:
        """One more, for one that was killed."""

    def spawn(self, command: Sequence[str], **settings: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}", **settings}
        self._processes.append(subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environment))

    def strike(self) -> bool:
        """Kill one that has taken a step, and let another one come; False where all are still starting."""
        training = sorted(self.training())
        if training:
            os.kill(self._rng.choice(training), signal.SIGKILL)
            self.replace()
        return bool(training)

    def training(self) -> list[int]:
        """The pids of those that live and have taken a step."""
        pids = [int(path.name.removeprefix("steps-")) for path in self.folder.glob("steps-*") if path.stat().st_size]
        return [pid for pid in pids if self.lives(pid)]

    def lives(self, pid: int) -> bool:
        """Whether a process of these runs; a zombie's command line is empty."""
        try:
            return str(self.folder) in Path(f"/proc/{pid}/cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False

    def steps(self) -> list[float]:
        """When each whole step of anyone ended."""
        lines = [line.split() for path in self.folder.glob("steps-*") for line in path.read_text().splitlines()]
        return sorted(float(words[0]) for words in lines if words)

    def accuracy(self) -> float:
        """As those that live have last seen it; the median."""
        looks = [(self.folder / f"steps-{pid}").read_text().splitlines() for pid in self.training()]
        last = [[float(words[1]) for line in lines if len(words := line.split()) == 2][-1:] for lines in looks]
        return median([accuracy for one in last for accuracy in one] or [0.0])

    def failed(self, what: str) -> Failed:
        self._log.flush()
        return Failed("\n".join([what, *(self.folder / "log").read_text().splitlines()[-12:]]))

    def __enter__(self) -> Trainers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self.training():  # torchrun's workers are sessions of their own
            os.kill(pid, signal.SIGKILL)
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Swarm(Trainers):
    """Ours: the first founds it."""

    def start(self) -> None:
        self._member()
        await_(lambda: bool(self._addresses()), self, "the founder is there")
        for _ in range(self.nodes - 1):
            self._member()

    def replace(self) -> None:
        self._member()

    def _member(self) -> None:
        self.spawn([*ours("member.py", "async", self.wait, self.folder), *self._addresses()])

    def _addresses(self) -> list[str]:
        """Of those that live."""
        notes = {int(path.name.removeprefix("address-")): path for path in self.folder.glob("address-*[0-9]")}
        return [path.read_text() for pid, path in notes.items() if self.lives(pid)]


class Elastic(Trainers):
    """DDP under torchrun, which replaces a dead worker by starting all anew."""

    def start(self) -> None:
        run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.nodes}"]
        work = ours("member.py", "ddp", self.wait, self.folder)[1:]
        # else the workers' store outlives them, the new ones dial the dead, and no restart succeeds
        self.spawn([*run, "--max-restarts=1000", *work], TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")


WAYS: dict[str, type[Trainers]] = {"async": Swarm, "ddp, torchrun elastic": Elastic}


def await_(true: Callable[[], bool], trainers: Trainers, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise trainers.failed(f"not within {PATIENCE:g} s: {what}")
        time.sleep(0.05)


def save_case(path: Path, seed: int) -> None:
    """All training images are for everyone."""
    images, labels = (tensor.numpy() for tensor in digits())
    weights = nn.utils.parameters_to_vector(Digits(1, seed=seed).model(0).parameters()).detach().numpy()
    arrays = {"images": images, "labels": labels, "weights": weights, "share-0": np.arange(TRAINING)}
    np.savez(path, seed=seed, **arrays)


# --- a run -----------------------------------------------------------------------------------------------------------


def rates(steps: Sequence[float], began: float, spans: int, length: float) -> list[float]:
    """Samples a second in each of so many spans."""
    edges = [began + i * length for i in range(spans + 1)]
    return [float(count) * BATCH / length for count in np.histogram(steps, edges)[0]]


def measure(trainers: Trainers, calm: int, churn: int, every: float) -> dict[str, list[float]]:
    """Spans of calm, then spans that begin with a death."""
    with trainers:
        trainers.start()
        await_(lambda: len(trainers.training()) == trainers.nodes, trainers, f"{trainers.nodes} train")
        time.sleep(WARM * trainers.wait)
        began, killed = time.monotonic(), 0
        rest(began + calm * every)
        for span in range(churn):
            say(f"  death {span + 1} of {churn}")
            killed += trainers.strike()
            rest(began + (calm + span + 1) * every)
        steps = trainers.steps()
        await_(lambda: trainers.accuracy() >= GOOD, trainers, f"the accuracy is {GOOD}")
    found = rates(steps, began, calm + churn, every)
    return {"calm": found[:calm], "churn": found[calm:], "killed": [killed]}


def rest(until: float) -> None:
    time.sleep(max(0.0, until - time.monotonic()))


def compare(
    nodes: int, turns: int, wait: float, calm: int, churn: int, every: float
) -> tuple[dict[str, dict[str, list[float]]], dict[str, str]]:
    """All ways in turn; spans of all turns, and why a way failed."""
    found: dict[str, dict[str, list[float]]] = {}
    failed: dict[str, str] = {}
    for turn in range(turns):
        for name, way in WAYS.items():
            if name in failed:
                continue
            say(f"turn {turn + 1} of {turns}: {name}")
            with excused(name, failed):
                for what, figures in measure(way(nodes, wait, turn), calm, churn, every).items():
                    found.setdefault(name, {}).setdefault(what, []).extend(figures)
    return found, failed


def kept(figures: Mapping[str, Sequence[float]]) -> float:
    """Mean rate in the churn over that in the calm."""
    return float(np.mean(figures["churn"]) / np.mean(figures["calm"]))


def table(found: dict[str, dict[str, list[float]]], failed: dict[str, str], nodes: int, every: float) -> Table:
    rows = [
        (name, *(Spread.of(f[what]).text(1.0, 0) for what in ("calm", "churn")), f"{kept(f):.0%}", f"{sum(f['killed']):g}")
        for name, f in found.items()
    ]
    rows += [
        (f"{name}: {reason.splitlines()[0]}; {reason.splitlines()[-1][:80]}", "", "", "", "") for name, reason in failed.items()
    ]
    columns = ("way", "samples/s, calm", "samples/s, churn", "kept, of the means", "killed")
    return Table(f"{nodes} processes, one killed and one more each {every:g} s", columns, rows)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--nodes", type=int, default=8)
    made.add_argument("--turns", type=int, default=1)
    made.add_argument("--wait", type=float, default=0.1, help="seconds of a step")
    made.add_argument("--every", type=float, default=10.0, help="seconds between two deaths")
    made.add_argument("--calm", type=int, default=3, help="spans of so many seconds before the first death")
    made.add_argument("--churn", type=int, default=6, help="deaths")
    args = made.parse_args()
    found, failed = compare(args.nodes, args.turns, args.wait, args.calm, args.churn, args.every)
    aims = [
        Target(
            "samples a second in the churn over those in the calm",
            0.85,
            kept(found["async"]) if "async" in found else None,
            True,
        )
    ]
    publish("churn", args, [table(found, failed, args.nodes, args.every), targets(aims)], {"rates": found, "failed": failed})


if __name__ == "__main__":
    main()
