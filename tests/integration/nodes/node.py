"""Stands in for a training script: keeps the contract between launcher and node, and does as its arguments say."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from p2p.errors import ContractError
from p2p.report import EventLog, StepReport

INDEX = os.environ["STARLINGS_INDEX"]
RUN = Path(os.environ["STARLINGS_RUN_DIR"])


def main(how: str, who: str = "") -> None:
    print("hello from", INDEX)
    if how == "early" and who == INDEX:
        sys.exit("no way in")
    if how == "refused":
        raise ContractError("another model")
    log = EventLog(RUN / f"events-{INDEX}.jsonl", time.time)
    log.write("start", id=INDEX * 32, address=f"tcp://127.0.0.1:700{INDEX}", pid=os.getpid(), index=int(INDEX), step=0)
    log.flush()
    if how == "fail" and who == INDEX:
        raise ValueError("a loss that is not a number")
    if how == "stubborn":
        ignore_signals()
    while how in ("wait", "early", "stubborn") and not (RUN / "go-on").exists():
        time.sleep(0.02)
    train(log)


def ignore_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    helper = subprocess.Popen(["sleep", "600"])  # as a data loader has its workers
    (RUN / f"helper-{INDEX}").write_text(str(helper.pid))


def train(log: EventLog) -> None:
    for step in (1, 2, 3):
        log.step(StepReport(step, step, ("a" * 10,), 100, 200, 0.0, 0.0, 0.5, (), (), 1.0), seconds=0.05)
        log.write("log", step=step, phase="training", loss=1 / step, accuracy=0.5 + int(INDEX) / 10)
        log.flush()
    log.write("log", step=3, phase="average", accuracy=0.99)
    log.write("end", steps=3, seconds=0.15, sent=300, received=600)
    log.close()


main(*sys.argv[1:])
