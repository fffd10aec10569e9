"""Runs all benches, writes what they found to docs/benchmarks/, and makes docs/benchmarks.md of it.

    python scripts/bench/all.py                        # about 40 minutes on two cores that do nothing else
    python scripts/bench/all.py --only scale churn     # these; the others' results stay
    python scripts/bench/all.py --quick                # small sizes, into a temporary folder: does everything run? 5 minutes

Stragglers are run with three seeds here; eight, as the bench has by itself, take half an hour. A bench that fails, or takes
three times as long as it should, is ended; the others go on, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import HERE, ROOT, heed, say
from report import DOCS, page


@dataclass(frozen=True)
class Bench:
    """A script with `--json`: how long it takes on two cores, its arguments then, and those for a look at whether it runs."""

    name: str
    minutes: float
    arguments: str = ""
    quick: str = ""


BENCHES = (
    Bench("exchange", 9, "--turns 2", "--megabytes 4 --nodes 2 --turns 1 --rounds 2 --warm 1"),
    Bench("overlap", 4, "--turns 2", "--only tiny --turns 1 --rounds 1 --tiny 100"),
    Bench("memory", 2, "", "--model tiny --steps 5"),
    Bench("start", 3, "--turns 2", "--nodes 2 --turns 1"),
    Bench("join", 3, "--donors 1 3", "--megabytes 4 --joins 1 --turns 1"),
    Bench("straggler", 10, "--seeds 3", "--seeds 1 --split shuffled --limit 10"),
    Bench("churn", 4, "", "--nodes 3 --calm 1 --churn 1"),
    Bench("scale", 4, "", "--real 2 --simulated 16 --steps 10"),
)


def run(bench: Bench, quick: bool, folder: Path) -> bool:
    """Whether it came to its end."""
    say(f"\n=== {bench.name}, about {bench.minutes:g} minutes")
    arguments = (bench.quick if quick else bench.arguments).split()
    command = [sys.executable, str(HERE / f"{bench.name}.py"), *arguments, "--json", str(folder / f"{bench.name}.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        code = process.wait(3 * 60 * bench.minutes)
    except subprocess.TimeoutExpired:
        say(f"{bench.name} takes too long and is ended")
        code = 1
    finally:
        end(process)
    say(f"=== {bench.name}: {'done' if code == 0 else 'FAILED'} after {(time.monotonic() - began) / 60:.1f} minutes")
    return code == 0


def end(process: subprocess.Popen[bytes]) -> None:
    """It has a minute to end what it began."""
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> int:
    heed()
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", nargs="+", choices=[bench.name for bench in BENCHES], help="these benches")
    made.add_argument("--quick", action="store_true", help="small sizes, nothing in docs/ is changed")
    args = made.parse_args()
    chosen = [bench for bench in BENCHES if not args.only or bench.name in args.only]
    with tempfile.TemporaryDirectory(prefix="starlings-bench-") as scratch:
        folder = Path(scratch) if args.quick else DOCS / "benchmarks"
        folder.mkdir(exist_ok=True)
        done = [run(bench, args.quick, folder) for bench in chosen]
        text = page(folder)
    if not args.quick:
        (DOCS / "benchmarks.md").write_text(text)
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
