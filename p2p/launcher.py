"""Starts the nodes of one machine, watches them, and ends them all: none outlives the launcher.

It knows nothing of torch or of the network: a node is a process with an environment and files in the run directory.
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import IO, Protocol

from p2p.errors import ConfigError, ListenError
from p2p.rundir import NodeState, RunDirectory, Tail, last_lines
from p2p.zygote import Order

TICK = 0.1
"""Seconds between two looks at the nodes."""
ESCALATION = ((0.0, signal.SIGINT), (2.0, signal.SIGTERM), (3.0, signal.SIGKILL))
"""What all nodes get when the run is ended, and how many seconds after that was asked for; 5 s must do."""
LAST_LINES = 12
"""Lines of a failed node's log that are shown."""
HEEDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOCAL = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""Where nodes of this machine find a founder that listens on all interfaces."""
MAX_LINES = 1024 * 1024
"""Bytes; more than a pipe holds, so lines come whole."""
SWARM_TIMEOUT = 300
"""Seconds for which nodes that were started together look for each other."""


class View(Protocol):
    """What shows a run to people."""

    def note(self, text: str) -> None:
        """Something that everybody should read."""

    def output(self, index: int, line: str) -> None:
        """A line that node `index` has printed."""

    def update(self, states: Sequence[NodeState]) -> None:
        """How the nodes stand; called at each tick."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start. With `peers` the nodes join that swarm; without, node 0 founds one."""

    script: str
    arguments: tuple[str, ...] = ()
    nodes: int = 1
    peers: tuple[str, ...] = ()
    secret: str = ""  # a file
    insecure: bool = False
    listen: str = "tcp://127.0.0.1"
    port: int = 0  # of node 0; 0 takes a free one
    advertise: str | None = None
    interface: str | None = None
    dial_only: bool = False
    topology: str | None = None
    algorithm: str | None = None
    site: str | None = None
    resume: str | None = None  # a run directory
    codec: str | None = None
    uplink: str | None = None
    downlink: str | None = None
    wan: str | None = None

    def orders(self, run: RunDirectory) -> list[Order]:
        """One order per node; ConfigError, ListenError where it can't be."""
        if self.nodes < 1:
            raise ConfigError(f"-n {self.nodes}: a swarm needs at least one node")
        port = self._port()
        return [
            Order(i, self.script, list(self.arguments), self._environment(run, i, port), str(run.log(i).resolve()))
            for i in range(self.nodes)
        ]

    def _port(self) -> int:
        """Node 0's: founders must have one that the others can be told."""
        host = _host(self.listen)
        if self.port:
            _check_port(host, self.port)
        return self.port if self.port or self.peers else _free_port(host)

    def _environment(self, run: RunDirectory, index: int, port: int) -> dict[str, str]:
        found = {
            "STARLINGS_INDEX": str(index),
            "STARLINGS_RUN_DIR": str(run.path.resolve()),
            "STARLINGS_SECRET": os.path.abspath(self.secret) if self.secret else "",
            "STARLINGS_INSECURE": "1" if self.insecure else "",
            "STARLINGS_DIAL_ONLY": "1" if self.dial_only else "",
            "STARLINGS_LISTEN": f"{self.listen}:{0 if index else port}",
            "STARLINGS_PEERS": ",".join(self.peers),
        }
        if not self.peers:
            host = _host(self.listen)
            found["STARLINGS_PEERS"] = f"tcp://{LOCAL.get(host, host)}:{port}" if index else ""
            found["STARLINGS_WAIT_FOR"] = str(self.nodes)
            found["STARLINGS_JOIN_TIMEOUT"] = str(SWARM_TIMEOUT)
        given = {"ADVERTISE": self.advertise, "INTERFACE": self.interface, "TOPOLOGY": self.topology,
                 "ALGORITHM": self.algorithm, "SITE": self.site, "RESUME": self.resume, "CODEC": self.codec,
                 "UPLINK": self.uplink, "DOWNLINK": self.downlink, "WAN": self.wan}  # fmt: skip
        return found | {f"STARLINGS_{name}": value for name, value in given.items() if value is not None}

    def join_line(self, address: str) -> str:
        """The command that adds one more node; it names the secret's file, never the secret."""
        options = ["--secret-file", self.secret] if self.secret else []
        if self.topology and ":" in self.topology:
            options += ["--topology", self.topology]
        return shlex.join(["starlings", "join", address, *options, self.script, *self.arguments])


class Launcher:
    """One run: from the zygote's first line to the last node's end."""

    def __init__(self, plan: Plan, run: RunDirectory, view: View) -> None:
        self._plan, self._run, self._view = plan, run, view
        self._orders = plan.orders(run)
        self.states = [NodeState(order.index) for order in self._orders]
        self._logs = [Tail(run.log(state.index)) for state in self.states]
        self._events = [Tail(run.events(state.index)) for state in self.states]
        self._ending: float | None = None  # since when
        self._sent = 0  # how many of ESCALATION
        self._signals: list[int] = []  # that came and are not heeded yet
        self._code = 0

    def run(self) -> int:
        """Runs all nodes to their end; 0 if all went well, else the first failure's code as a shell gives it."""
        began = time.monotonic()
        with _heeding(self._signals), self._zygote() as self._process:
            while any(state.running for state in self.states) and self._hear():
                self._heed()
                self._look()
        self._bury()
        self._run.write("nodes.json", [state.identity() for state in self.states])
        self._run.write("summary.json", self._summary(time.monotonic() - began))
        return self._code

    @contextmanager
    def _zygote(self) -> Iterator[subprocess.Popen[bytes]]:
        """Its session is its own, so the terminal's Ctrl-C passes it by; when it ends, so do the nodes."""
        command = [sys.executable, "-m", "p2p.zygote", str(os.getpid())]
        pipe, environment = subprocess.PIPE, _environment(self._plan.nodes)
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True) as zygote:
            try:
                orders = json.dumps([asdict(order) for order in self._orders])
                with suppress(BrokenPipeError), zygote.stdin as stdin:  # type: ignore[union-attr]
                    stdin.write(orders.encode())
                yield zygote
            finally:
                zygote.kill()

    def _hear(self) -> bool:
        """Waits a tick for the zygote's next lines; False once it has ended."""
        stdout: IO[bytes] = self._process.stdout  # type: ignore[assignment]
        if not select.select([stdout], [], [], TICK)[0]:
            return True
        lines = os.read(stdout.fileno(), MAX_LINES)
        for line in lines.splitlines():
            self._told(json.loads(line))
        return bool(lines)

    def _heed(self) -> None:
        """Does what the signals that came ask for."""
        while self._signals:
            number = self._signals.pop(0)
            self._code = self._code or 128 + number
            if self._ending is not None:  # asked twice: at once
                self._ending -= ESCALATION[-1][0]
            self._end()

    def _bury(self) -> None:
        """Nodes that the zygote took with it."""
        lost = [state for state in self.states if state.running]
        if lost and self._ending is None:
            self._view.note(f"the zygote, from which the nodes are forked: {describe(self._process.returncode)}")
            self._code = self._code or 1
            self._end()
        for state in lost:
            self._ended(state, -signal.SIGKILL)

    def _told(self, event: dict[str, int]) -> None:
        state = self.states[event["index"]]
        if "pid" in event:
            state.pid = event["pid"]
        else:
            self._ended(state, event["code"])

    def _ended(self, state: NodeState, code: int) -> None:
        state.code = code
        if state.pid is not None:
            _kill(state.pid, signal.SIGKILL)  # what it has left behind: data loaders
        self._look()
        if code == 0 or self._ending is not None:
            return
        self._code = self._code or (code if code > 0 else 128 - code)
        self._view.note(self._failure(state))
        if not state.joined and any(other.running for other in self.states):
            self._view.note("it failed before it was in the swarm: the others are ended")
            self._end()

    def _failure(self, state: NodeState) -> str:
        log = self._run.log(state.index)
        shown = last_lines(log, LAST_LINES) if log.exists() else []
        name = f"node {state.index} ({state.id[:10]})" if state.id else f"node {state.index}"
        return "\n".join([f"{name} failed: {describe(state.code)}; the end of {log}:", *(f"    {line}" for line in shown)])

    def _look(self) -> None:
        """Takes in what the nodes have written, shows it, and goes on ending them where that is due."""
        for state, log, events in zip(self.states, self._logs, self._events, strict=True):
            if state.follow(events.lines() if state.running else events.rest()):
                self._started(state)
            for line in log.lines() if state.running else log.rest():
                self._view.output(state.index, line.rstrip("\r").rpartition("\r")[2])
        self._view.update(self.states)
        if self._ending is not None:
            self._escalate(time.monotonic() - self._ending)

    def _started(self, state: NodeState) -> None:
        self._run.write("nodes.json", [other.identity() for other in self.states if other.joined])
        if state.index == 0 and not self._plan.peers:
            self._view.note(f"one more node: {self._plan.join_line(state.address)}")

    def _end(self) -> None:
        if self._ending is None:
            self._ending = time.monotonic()
        if any(state.pid is None for state in self.states):  # still at its imports
            self._process.kill()

    def _escalate(self, elapsed: float) -> None:
        while self._sent < len(ESCALATION) and elapsed >= ESCALATION[self._sent][0]:
            for state in self.states:
                if state.running and state.pid is not None:
                    _kill(state.pid, ESCALATION[self._sent][1])
            self._sent += 1

    def _summary(self, seconds: float) -> dict[str, object]:
        averages = [state.average for state in self.states if state.average]
        return {
            "command": [self._plan.script, *self._plan.arguments],
            "exit_code": self._code,
            "seconds": round(seconds, 3),
            "nodes": [state.summary() for state in self.states],
            "average": averages[0] if averages else {},
        }


def describe(code: int | None) -> str:
    """An exit code in words: "exit code 3", "killed by SIGKILL"."""
    if code is None:
        return "running"
    if code >= 0:
        return f"exit code {code}"
    return f"killed by {signal.Signals(-code).name}"


def _environment(nodes: int) -> dict[str, str]:
    """The zygote's: the cores are shared out, unless the user has done so."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return {"OMP_NUM_THREADS": str(max(1, cores // nodes)), **os.environ}


def _kill(pid: int, number: int) -> None:
    """One signal to a node; SIGKILL to its whole process group."""
    with suppress(ProcessLookupError):
        if number != signal.SIGKILL:
            return os.kill(pid, number)
        os.killpg(pid, number)


@contextmanager
def _heeding(noted: list[int]) -> Iterator[None]:
    """Signals that ask for the end are noted; what came before is put back."""
    before = {number: signal.signal(number, lambda number, _: noted.append(number)) for number in HEEDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _host(listen: str) -> str:
    found = re.fullmatch(r"tcp://(\[[0-9a-fA-F:]+\]|[^:/\[\]]+)", listen)
    if found is None:
        raise ConfigError(f"listen address {listen!r}: give tcp://HOST, an own address or * for all; the port is --port")
    return found[1]


def _free_port(host: str) -> int:
    """A port that is free, as is the one after it."""
    for _ in range(100):
        with _bound(host, 0) as first:
            port: int = first.getsockname()[1]
            with suppress(OSError), _bound(host, port + 1):
                return port
    raise ListenError(f"no two free ports in a row on {host}")


def _check_port(host: str, port: int) -> None:
    """ListenError unless `port` (control) and the next one (data) can be bound now."""
    for number in (port, port + 1):
        try:
            _bound(host, number).close()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ListenError(f"can't listen on tcp://{host}:{number}: {reason}; choose another --port") from None


def _bound(host: str, port: int) -> socket.socket:
    """A bound socket; OSError where that can't be."""
    name = None if host == "*" else host.strip("[]")
    family, kind, protocol, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound
