"""Stands in for a training script: keeps the contract between launcher and node, and does as its argument says."""

import os
import subprocess
import sys
import time
from pathlib import Path

from p2p.report import EventLog, StepReport

INDEX = os.environ["STARLINGS_INDEX"]
RUN = Path(os.environ["STARLINGS_RUN_DIR"])


def report(step: int) -> StepReport:
    return StepReport(step, step, ("a" * 10,), 100, 200, 0.0, 0.0, 0.5, (), (), 1.0)


def main(how: str, who: str = "") -> None:
    log = EventLog(RUN / f"events-{INDEX}.jsonl", time.time)
    print("hello from", INDEX, "threads", os.environ["OMP_NUM_THREADS"], flush=True)
    if how == "early" and who == INDEX:
        sys.exit("no way in")
    log.write("start", id=INDEX * 32, address=f"tcp://127.0.0.1:700{INDEX}", pid=os.getpid(), index=int(INDEX), step=0)
    log.flush()
    if how == "fail" and who == INDEX:
        raise ValueError("a loss that is not a number")
    if how == "stubborn":
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "1000"])  # a data loader
    for step in range(1, 4) if how in ("train", "fail") else iter(int, 1):
        time.sleep(0.05)
        log.step(report(step), seconds=0.05)
        log.write("log", step=step, phase="training", loss=1 / max(step, 1), accuracy=0.5 + int(INDEX) / 10)
        log.flush()
    log.write("log", step=3, phase="average", accuracy=0.99)
    log.write("end", steps=3, seconds=0.15, sent=300, received=600)
    log.close()


main(*sys.argv[1:])
