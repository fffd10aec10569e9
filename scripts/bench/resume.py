"""A run of four nodes that is killed whole and goes on with three, and then with six, beside one that nobody disturbs.

    python scripts/bench/resume.py --nodes 4 3 6 --steps 600 --algorithms gossip async --runs 3

Real digits, softmax regression, 240 samples a step over all nodes, a checkpoint every 20 steps. Each leg but the last is
ended by SIGKILL to every node and the launcher at once. Compared is the loss over all digits of the mean of the nodes'
models, at the same number of samples: those that all nodes had processed, for in `async` nodes count steps of their own, and
what was done after the checkpoint from which a run goes on does not count. Losses are averaged over windows and over runs,
for two undisturbed runs differ as well.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean

import numpy as np
import numpy.typing as npt
from harness import ROOT, Table, heed, parser, publish, say

from p2p.sim.workloads import digits

BATCH, EVERY, LOOK = 240, 20, 2
LOOKS = "looks"
"""Folder of a run in which nodes leave their models."""

Floats = npt.NDArray[np.float64]
Losses = list[tuple[int, float]]
"""Samples that all have processed, and the loss then."""


@dataclass(frozen=True)
class Look:
    """A node's model after one of its steps in one leg of a run."""

    leg: int
    index: int
    step: int
    at: float
    seen: int  # samples that the node processed in this leg
    weights: Floats


@dataclass(frozen=True)
class Pair:
    """A run that was left alone, and one that was killed, with the samples from which that one went on."""

    calm: Losses
    struck: Losses
    resumed: list[int]


def main() -> None:
    args = arguments()
    if args.train:
        train(Path(os.environ["STARLINGS_RUN_DIR"]), args.steps)
        return
    heed()
    figures = {algorithm: [pair(algorithm, run, args) for run in range(args.runs)] for algorithm in args.algorithms}
    tables = [table(algorithm, found, args) for algorithm, found in figures.items()]
    publish("resume", args, tables, {algorithm: [asdict(one) for one in found] for algorithm, found in figures.items()})


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--nodes", type=int, nargs="+", default=[4, 3, 6], help="of each leg")
    made.add_argument("--steps", type=int, default=600)
    made.add_argument("--algorithms", nargs="+", default=["gossip", "async"])
    made.add_argument("--runs", type=int, default=3, help="of each kind")
    made.add_argument("--windows", type=int, default=3, help="in which losses are averaged, after each kill")
    made.add_argument("--train", action="store_true", help="be a node: what the launcher starts")
    return made.parse_args()


# --- a node ------------------------------------------------------------------------------------------------------


def train(run: Path, steps: int) -> None:
    import torch
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, TensorDataset

    import p2p

    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(*digits())
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    folder, index = run / LOOKS, os.environ["STARLINGS_INDEX"]
    folder.mkdir(exist_ok=True)
    with p2p.join(model, optimizer) as node:
        node.checkpoint(EVERY)
        batches = node.batches(data, f"global:{BATCH}")
        loader, seen = DataLoader(data, batch_sampler=batches), 0
        while node.step_count < steps:
            for x, y in loader:
                optimizer.zero_grad()
                (F.cross_entropy(model(x), y) * batches.now.weight).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                seen += len(y)
                time.sleep(0.01)
                if node.step_count % LOOK == 0:
                    weights = torch.cat([model.weight, model.bias[:, None]], 1).detach().numpy()
                    name = f"{os.environ['LEG']}-{index}-{node.step_count:06d}.npz"
                    np.savez(folder / name, weights=weights, at=np.array(time.time()), seen=np.array(seen))
                if node.step_count >= steps:
                    break


# --- the runs ----------------------------------------------------------------------------------------------------


def pair(algorithm: str, number: int, args: argparse.Namespace) -> Pair:
    with tempfile.TemporaryDirectory() as folder:
        calm, struck = Path(folder, "calm"), Path(folder, "struck")
        say(f"{algorithm}, run {number + 1} of {args.runs}: undisturbed")
        finish(launch(calm, 0, args.nodes[0], algorithm, args.steps))
        say(f"{algorithm}, run {number + 1} of {args.runs}: killed and resumed")
        origins = [strike(struck, leg, algorithm, args) for leg in range(len(args.nodes))]
        curve, resumed = losses(looks(struck), origins)
        return Pair(losses(looks(calm), [(0, 0)])[0], curve, resumed[1:])


def launch(run: Path, leg: int, nodes: int, algorithm: str, steps: int) -> subprocess.Popen[bytes]:
    """A run, or one that goes on where there is something to go on from."""
    where = ["--resume", str(run)] if leg else ["--run-dir", str(run)]
    settings = ["-n", str(nodes), "--algorithm", algorithm, *where]
    script = [str(Path(__file__).resolve()), "--train", "--steps", str(steps)]
    command = [sys.executable, str(ROOT / "scripts" / "launch.py"), *settings, *script]
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "LEG": str(leg)}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)


def strike(run: Path, leg: int, algorithm: str, args: argparse.Namespace) -> tuple[int, int]:
    """One leg, with its number of nodes; killed whole at its share of the steps. The step, and whose, from which it went on."""
    begun = newest(run)
    process = launch(run, leg, args.nodes[leg], algorithm, args.steps)
    if leg < len(args.nodes) - 1:
        try:
            while newest(run)[0] < args.steps * (leg + 1) // len(args.nodes) and process.poll() is None:
                time.sleep(0.02)
        finally:
            for pid in [process.pid, *pids(run)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    finish(process)
    return begun


def finish(process: subprocess.Popen[bytes]) -> None:
    """Wait for its end; it ends with this process."""
    try:
        process.wait()
    finally:
        process.terminate()
        process.wait()


def newest(run: Path) -> tuple[int, int]:
    """Step and node of the checkpoint from which a run would go on; of several nodes' the first one's."""
    found = [(int(path.name[5:]), int(path.parent.name[5:])) for path in run.glob("checkpoints/node-*/step-*")]
    return max(found, key=lambda one: (one[0], -one[1]), default=(0, 0))


def pids(run: Path) -> list[int]:
    """Of the present leg's nodes."""
    with suppress(FileNotFoundError):
        return [int(node["pid"]) for node in json.loads((run / "nodes.json").read_text())]
    return []


# --- what came of it ---------------------------------------------------------------------------------------------


def looks(run: Path) -> list[Look]:
    """All, in the order of time."""
    found = []
    for path in (run / LOOKS).glob("*.npz"):
        with suppress(ValueError, EOFError, OSError, zipfile.BadZipFile), np.load(path) as content:  # cut off by a kill
            leg, index, step = map(int, path.stem.split("-"))
            weights = content["weights"].astype(np.float64)
            found.append(Look(leg, index, step, float(content["at"]), int(content["seen"]), weights))
    return sorted(found, key=lambda look: look.at)


def losses(found: Sequence[Look], origins: Sequence[tuple[int, int]]) -> tuple[Losses, list[int]]:
    """Of the mean of the nodes' models; and the samples from which each leg went on, given by step and node."""
    x, y = (tensor.numpy() for tensor in digits())
    curve: Losses = []
    begins = [0]
    for leg in range(len(origins)):
        own, latest = [look for look in found if look.leg == leg], dict[int, Look]()
        for look in own:
            latest[look.index] = look
            seen = begins[-1] + sum(one.seen for one in latest.values())
            curve.append((seen, loss(np.mean([one.weights for one in latest.values()], 0), x, y)))
            if leg + 1 < len(origins) and (look.step, look.index) == origins[leg + 1]:
                begins.append(seen)
                break
    return curve, begins


def loss(weights: Floats, x: Floats, y: npt.NDArray[np.int64]) -> float:
    """Mean cross entropy; `weights`: 10 x 65, the last column the bias."""
    scores = x @ weights[:, :-1].T + weights[:, -1]
    scores -= scores.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(y)), y]))


def table(algorithm: str, found: Sequence[Pair], args: argparse.Namespace) -> Table:
    """Each leg after the first kill in windows; runs go on from about the same number of samples."""
    begins = [min(samples) for samples in zip(*(run.resumed for run in found), strict=True)]
    end = min(curve[-1][0] for run in found for curve in (run.calm, run.struck))
    rows, ratios = list[tuple[str, ...]](), list[float]()
    for lower, upper in windows([*begins, end], args.windows):
        calm = [within(run.calm, lower, upper) for run in found]
        struck = [within(run.struck, lower, upper) for run in found]
        ratios.append(mean(struck) / mean(calm))
        rows.append((f"{lower} to {upper}", spread(calm), spread(struck), f"{ratios[-1]:.3f}"))
    columns = ("samples", "undisturbed", "killed and resumed", "ratio")
    note = f"resumed from {begins} samples with {args.nodes[1:]} nodes; ratios {min(ratios):.3f} to {max(ratios):.3f}"
    return Table(f"{algorithm}: loss of the mean model, {len(found)} runs each (least to most)", columns, rows, (note,))


def windows(ends: Sequence[int], parts: int) -> list[tuple[int, int]]:
    """Each leg in so many parts."""
    marks = [begin + (end - begin) * part // parts for begin, end in pairwise(ends) for part in range(parts)]
    return list(pairwise([*marks, ends[-1]]))


def within(curve: Losses, lower: int, upper: int) -> float:
    """The mean loss between two numbers of samples."""
    samples, values = zip(*sorted(curve), strict=True)
    return float(np.interp(np.linspace(lower, upper, 50), samples, values).mean())


def spread(values: Sequence[float]) -> str:
    return f"{mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"


if __name__ == "__main__":
    main()
