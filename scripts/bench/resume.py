"""A run of four nodes that is killed whole and goes on with three, and then with six, beside one that nobody disturbs.

    python scripts/bench/resume.py --nodes 4 3 6 --steps 600

Real digits, shuffled, softmax regression, 240 samples a step over all nodes, a checkpoint every 20 steps. Each leg but the
last is ended by SIGKILL to every node and the launcher at once. Prints the loss over all digits, the mean over the nodes, at
the same number of samples of both runs, and the largest ratio after the first kill.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

BATCH, EVERY, LOOK = 240, 20, 20
ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    args = arguments()
    if args.train:
        train(args.steps)
        return
    with tempfile.TemporaryDirectory() as folder:
        calm, struck = Path(folder, "calm"), Path(folder, "struck")
        launch(calm, args.nodes[0], args).wait()
        resumed = [strike(struck, nodes, args, leg) for leg, nodes in enumerate(args.nodes)]
        show(losses(calm), losses(struck), resumed[1:])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Kill a run, resume it with other numbers of nodes, and compare losses.")
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 3, 6], help="of each leg")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--algorithm", default="gossip", help="in rounds, a step is the same number of samples for all")
    parser.add_argument("--train", action="store_true", help="be a node: what the launcher starts")
    return parser.parse_args()


# --- a node ------------------------------------------------------------------------------------------------------


def train(steps: int) -> None:
    import torch
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, TensorDataset

    import p2p
    from p2p.sim.workloads import digits

    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(*digits())
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with p2p.join(model, optimizer) as node:
        node.checkpoint(EVERY)
        batches = node.batches(data, f"global:{BATCH}")
        loader = DataLoader(data, batch_sampler=batches)
        while node.step_count < steps:
            for x, y in loader:
                optimizer.zero_grad()
                (F.cross_entropy(model(x), y) * batches.now.weight).backward()
                optimizer.step()
                time.sleep(0.01)
                if node.step_count % LOOK == 0:
                    with torch.no_grad():
                        loss = float(F.cross_entropy(model(data.tensors[0]), data.tensors[1]))
                    node.log(loss=loss)
                if node.step_count >= steps:
                    break


# --- the runs ----------------------------------------------------------------------------------------------------


def launch(run: Path, nodes: int, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    """A run, or one that goes on where there is something to go on from."""
    where = ["--resume", str(run)] if any(run.glob("checkpoints/*/step-*")) else ["--run-dir", str(run)]
    settings = ["-n", str(nodes), "--algorithm", args.algorithm, *where]
    script = [str(Path(__file__).resolve()), "--train", "--steps", str(args.steps)]
    command = [sys.executable, str(ROOT / "scripts" / "launch.py"), *settings, *script]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)


def strike(run: Path, nodes: int, args: argparse.Namespace, leg: int) -> int:
    """One leg, with so many nodes; killed whole at its share of the steps. The step from which it went on."""
    begun = newest(run)
    process = launch(run, nodes, args)
    if leg == len(args.nodes) - 1:
        process.wait()
        return begun
    end = args.steps * (leg + 1) // len(args.nodes)
    while newest(run) < end and process.poll() is None:
        time.sleep(0.02)
    for pid in [process.pid, *pids(run)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    print(f"{nodes} nodes, from step {begun}: killed at step {newest(run)} or a little later")
    return begun


def newest(run: Path) -> int:
    return max((int(path.name[5:]) for path in run.glob("checkpoints/*/step-*")), default=0)


def pids(run: Path) -> list[int]:
    """Of the present leg's nodes."""
    return [int(node["pid"]) for node in json.loads((run / "nodes.json").read_text())]


def losses(run: Path) -> dict[int, float]:
    """Step -> the mean of the nodes' losses; of a step that was taken twice, each node's last."""
    last: dict[int, dict[str, float]] = {}
    for path in run.glob("events-*.jsonl"):
        for line in path.read_text().splitlines():
            with suppress(ValueError):  # of a node that was killed, the last one may be cut off
                event = json.loads(line)
                if "loss" in event:
                    last.setdefault(event["step"], {})[path.stem] = event["loss"]
    return {step: statistics.mean(found.values()) for step, found in sorted(last.items())}


def show(calm: dict[int, float], struck: dict[int, float], resumed: list[int]) -> None:
    shared = [step for step in calm if step in struck]
    print(f"{'samples':>8} {'undisturbed':>11} {'killed':>7} {'ratio':>6}")
    for step in shared[:: max(1, len(shared) // 15)]:
        print(f"{step * BATCH:8} {calm[step]:11.4f} {struck[step]:7.4f} {struck[step] / calm[step]:6.3f}")
    after = [struck[step] / calm[step] for step in shared if step > resumed[0]]
    print(f"resumed at steps {resumed}; loss ratios from the first resume on: {min(after):.3f} to {max(after):.3f}")


if __name__ == "__main__":
    main()
