"""The zygote: one process that has imported torch, and forks the nodes from it.

Sixteen interpreters that each import torch take half a minute; sixteen forks take under a second. The launcher runs
`python -m p2p.zygote <its pid>`, writes the orders (a JSON array) to its standard input, and reads one JSON line per event from
its standard output: {"index", "pid"} for each node that was started, {"index", "code"} for each that ended. It opens
no thread, no socket and asks nothing of CUDA before it forks.

Nodes, zygote and launcher die in that order of dependence, even by SIGKILL: each asks the kernel for it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from functools import partial
from types import TracebackType

from p2p.errors import StarlingsError

PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, slots=True)
class Order:
    """One node to start: `script` runs as `python script arguments` would, its output in the file `log`."""

    index: int
    script: str
    arguments: list[str]
    environment: dict[str, str]  # added to the zygote's
    log: str


def main() -> None:
    """Starts what standard input orders and reports until the last node has ended; in a node, runs its script."""
    _die_with(int(sys.argv[1]))
    if len(sys.argv) > 2:
        return _run(Order(**json.loads(sys.argv[2])))
    orders = [Order(**order) for order in json.load(sys.stdin)]
    if sys.platform != "darwin":
        _preload()
    zygote, nodes = os.getpid(), {}
    for order in orders:
        pid = _start(order)
        if pid == 0:
            _die_with(zygote)
            return _run(order)
        nodes[pid] = order.index
        _tell(index=order.index, pid=pid)
    while nodes:
        pid, status = os.wait()
        _tell(index=nodes.pop(pid), code=os.waitstatus_to_exitcode(status))


def _preload() -> None:
    for module in ("torch", "torch._dynamo", "p2p.node"):  # an optimizer's first step imports dynamo
        if importlib.util.find_spec(module):
            importlib.import_module(module)


def _start(order: Order) -> int:
    """The new node's pid, or 0 in the node itself."""
    if sys.platform == "darwin":  # its frameworks do not survive a fork
        command = [sys.executable, "-m", "p2p.zygote", str(os.getpid()), json.dumps(asdict(order))]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL).pid
    return os.fork()


def _tell(**fields: int) -> None:
    os.write(1, f"{json.dumps(fields)}\n".encode())  # a line is one write, and so comes whole


def _run(order: Order) -> None:
    os.setsid()  # the terminal's Ctrl-C reaches the launcher alone, which passes it on
    _redirect(order.log)
    os.environ.update(order.environment)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.argv = [order.script, *order.arguments]
    sys.path[0:1] = [os.path.dirname(os.path.abspath(order.script)), os.getcwd()]  # the script's modules, and --topology's
    sys.excepthook = partial(_report, order.script)
    runpy.run_path(order.script, run_name="__main__")


def _report(script: str, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What ended the script, as `python script` would show it, but in one line where it was raised on purpose."""
    while trace is not None and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    if isinstance(error, StarlingsError):
        print(f"{kind.__name__}: {error}", file=sys.stderr)
    elif not isinstance(error, KeyboardInterrupt):
        traceback.print_exception(kind, error, trace)


def _redirect(log: str) -> None:
    """Standard input from nowhere; output and errors, line by line, to the log."""
    for path, flags, targets in ((os.devnull, os.O_RDONLY, (0,)), (log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, (1, 2))):
        file = os.open(path, flags, 0o644)
        for target in targets:
            os.dup2(file, target)
        os.close(file)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _die_with(parent: int) -> None:
    """This process is killed when `parent`, which started it, ends in whatever way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it had ended before we asked
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
