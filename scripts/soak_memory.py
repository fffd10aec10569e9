"""Does memory grow? Two nodes train a model of 25 million parameters with `async`, and are watched.

    python scripts/soak_memory.py                # 500 steps; a few minutes
    python scripts/soak_memory.py --steps 200

Flat means: between the first and the last steps after step 50, the median of the resident memory grew by 2 % at most, and
there are no more threads and descriptors. The exit code says whether that held. A third process that trains alone, without
a swarm, shows what of the peak is the swarm's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch import nn

import p2p

SIDE = 5000  # 25 million parameters, 100 MB
WARM = 50  # steps
GROWTH = 1.02
MIB = 1024 * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description="Watch the memory of two nodes.")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--as", dest="role", choices=("alone", "founder", "joiner"), help="one of the three processes")
    args = parser.parse_args()
    if args.role:
        print(json.dumps(train(args.role, args.steps)), flush=True)
        return 0
    alone = result(start("alone", WARM))
    founder = start("founder", args.steps)
    assert founder.stdout is not None
    joiner = start("joiner", args.steps, STARLINGS_PEERS=founder.stdout.readline().strip())
    held = [report(*pair, alone["peak"]) for pair in (("founder", result(founder)), ("joiner", result(joiner)))]
    return 0 if all(held) else 1


def start(role: str, steps: int, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--as", role, "--steps", str(steps)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **environment}
    )


def result(process: subprocess.Popen[str]) -> dict[str, float]:
    output, _ = process.communicate()
    if process.returncode:
        sys.exit(f"a node failed with exit code {process.returncode}")
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def report(role: str, found: dict[str, float], alone: float) -> bool:
    """One line for people; whether it held."""
    flat = found["late"] <= GROWTH * found["early"]
    steady = all(found[f"{what}_late"] <= found[f"{what}_early"] for what in ("threads", "descriptors"))
    print(
        f"{role}: resident {found['early'] / MIB:.0f} MiB after step {WARM}, {found['late'] / MIB:.0f} MiB at the end "
        f"({found['late'] / found['early'] - 1:+.2%}, at most {found['most'] / MIB:.0f}); "
        f"threads {found['threads_early']:.0f} -> {found['threads_late']:.0f}, "
        f"descriptors {found['descriptors_early']:.0f} -> {found['descriptors_late']:.0f}; "
        f"peak {found['peak'] / MIB:.0f} MiB, {(found['peak'] - alone) / MIB:.0f} MiB over training alone; "
        f"met its partner {found['met']:.0f} times: {'held' if flat and steady else 'NOT HELD'}",
        flush=True,
    )
    return flat and steady and found["met"] > 0


def train(role: str, steps: int) -> dict[str, float]:
    torch.manual_seed(0)
    model = nn.Linear(SIDE, SIDE, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(1, SIDE)
    seen: list[tuple[int, int, int]] = []
    met = 0
    with nullcontext() if role == "alone" else p2p.join(model, optimizer, wait_for=2, join_timeout=120) as node:
        if role == "founder":
            print(node.address, flush=True)
        for step in range(steps):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            if step >= WARM:
                seen.append(usage())
                met += len(node.last_step.partners)
        if node is not None:
            node.consensus(timeout=60)
    return {"peak": peak(), **(summary(seen) if seen else {}), "met": met}


def usage() -> tuple[int, int, int]:
    """Resident bytes, threads, descriptors."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def peak() -> int:
    """Bytes that were resident at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def summary(seen: list[tuple[int, int, int]]) -> dict[str, float]:
    part = max(1, len(seen) // 10)
    early, late = zip(*seen[:part], strict=True), zip(*seen[-part:], strict=True)
    names = ("", "threads_", "descriptors_")
    ends = {f"{name}early": median(values) for name, values in zip(names, early, strict=True)}
    ends |= {f"{name}late": median(values) for name, values in zip(names, late, strict=True)}
    return {**ends, "most": max(resident for resident, _, _ in seen)}


if __name__ == "__main__":
    sys.exit(main())
