"""How long it takes to begin: imports beside torch's, and from the command to the first step of all of so many nodes.

    python scripts/bench/start.py
    python scripts/bench/start.py --nodes 4 --turns 1

Imports are of new processes, `import torch` in turn with `import torch, p2p.node` (what `p2p.join` needs), and counted in CPU
time as well. Nodes are started by `starlings launch`, which waits for all of them before the first step; DDP beside it by
`torchrun`, the same number of processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from harness import HERE, ROOT, Failed, Spread, Table, Target, parser, publish, say, targets

IMPORTS = {"torch": "import torch", "torch, p2p": "import torch, p2p; p2p.join"}
MEASURE = "import time; a = time.perf_counter(); {}; print(time.perf_counter() - a, time.process_time())"


def imports() -> dict[str, tuple[float, float]]:
    """Seconds, and CPU seconds with the interpreter's own start, of each."""
    found = {}
    for name, statement in IMPORTS.items():
        text = subprocess.run(
            [sys.executable, "-c", MEASURE.format(statement)], capture_output=True, text=True, check=True, env=_environment()
        ).stdout
        wall, cpu = text.split()
        found[name] = (float(wall), float(cpu))
    return found


def launched(nodes: int) -> float:
    """Seconds from the command to the last node's first step."""
    launch = [sys.executable, str(ROOT / "scripts" / "launch.py"), "-n", str(nodes), "--plain"]
    return _first_steps(
        nodes, lambda folder: [*launch, "--run-dir", f"{folder}/run", str(HERE / "ways" / "start.py"), folder, str(nodes)]
    )


def torchrun(nodes: int) -> float:
    """The same of DDP."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nodes}"]
    return _first_steps(nodes, lambda folder: [*run, str(HERE / "ways" / "start_ddp.py"), folder])


def _first_steps(nodes: int, command: Callable[[str], list[str]]) -> float:
    with tempfile.TemporaryDirectory(prefix="starlings-bench-") as folder:
        began = time.time()
        result = subprocess.run(command(folder), capture_output=True, text=True, env=_environment(), cwd=folder, timeout=300)
        notes = [note.read_text().split() for note in Path(folder).glob("first-*")]
        if len(notes) < nodes:
            raise Failed(f"{len(notes)} of {nodes} took a step: {result.stderr[-500:]}")
        if any(int(members) < nodes for _, members in notes):
            raise Failed(f"a node began with {min(int(m) for _, m in notes)} of {nodes} members")
        return max(float(when) for when, _ in notes) - began


def _environment() -> dict[str, str]:
    """Compiled modules are kept, as they are wherever a package is installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    cache = str(Path(tempfile.gettempdir()) / "starlings-bench-bytecode")
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}", "PYTHONPYCACHEPREFIX": cache}


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--nodes", type=int, default=16)
    made.add_argument("--turns", type=int, default=5)
    args = made.parse_args()
    imports()
    loads, starts = [], []
    for turn in range(args.turns):
        say(f"turn {turn + 1} of {args.turns}")
        loads.append(imports())
        starts.append({"starlings launch": launched(args.nodes), "torchrun": torchrun(args.nodes)})
    rows = [
        (f"import {name}", *(Spread.of([load[name][i] for load in loads]).text(1.0, 3) for i in range(2))) for name in IMPORTS
    ]
    plain, ours = IMPORTS
    rows.append(
        (
            "the second less the first",
            *(Spread.of([load[ours][i] - load[plain][i] for load in loads]).text(1.0, 3) for i in range(2)),
        )
    )
    first = [(name, Spread.of([start[name] for start in starts]).text(1.0, 2)) for name in starts[0]]
    tables = [
        Table("Imports", ("statement", "seconds", "CPU seconds, interpreter included"), rows),
        Table(f"From the command to the first step of {args.nodes} processes", ("command", "seconds"), first),
        targets(
            [Target("imports beyond torch's, CPU seconds", 0.15, median(load[ours][1] - load[plain][1] for load in loads))]
        ),
    ]
    publish("start", args, tables, {"imports": loads, "starts": starts})


if __name__ == "__main__":
    main()
