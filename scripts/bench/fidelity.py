"""Is the simulator right? Four real processes beside its prediction, from step times measured without gossip and link rates.

    python scripts/bench/fidelity.py                    # all scenarios, 30 s each; the last needs Linux and root
    python scripts/bench/fidelity.py --only async --seconds 60

Each process trains a 64-64-10 network on its labels of sorted digits, beside ballast that brings the model to `--megabytes`;
a step sleeps for 100 ms more. Its length is measured first in processes that train alone, as many at a time; where rounds keep
them in step, they begin each step together there, too. A link's rate is what agents get out of the loopback device, and of the
machine, while nobody trains; or that of TCP on the 100 Mbit that `tc` gives each process's own line. Printed, real and
simulated: steps and own swaps of each block a second (mean over the nodes), share of the time that was spent waiting,
accuracy of the mean model.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from harness import Contender, Crew, ours, span

NODES, PAUSE, APART, TRIPS = 4, 0.1, 8.0, 41
ALONE, TOGETHER = "-", "="
"""In place of an algorithm: no swarm; none, and each step begins when the others' do."""
PORT = 7410


@dataclass(frozen=True)
class Case:
    """One row."""

    name: str
    algorithm: str
    slow: float = 1.0  # factor of the first node
    thin: bool = False


CASES = (
    Case("gossip", "gossip"),
    Case("gossip, one 3x", "gossip", slow=3.0),
    Case("async", "async"),
    Case("async, one 3x", "async", slow=3.0),
    Case("async, 100 Mbit", "async", thin=True),
)


# --- one process -----------------------------------------------------------------------------------------------------


def node(index: int, pause: float, seconds: float, megabytes: float, algorithm: str, peer: str, listen: str) -> None:
    """Train for so long, alone in step with others who do, or in a swarm; print what came of it."""
    import torch
    from torch import nn

    import p2p
    from p2p.sim.workloads import Digits

    torch.set_num_threads(1)
    work = Digits(NODES, "sorted")
    net = work.model(index)
    model = nn.ModuleDict({"net": net, "ballast": nn.ParameterList([torch.zeros(int(megabytes * 1e6 / 4) - 4810)])})
    optimizer = work.optimizer(model)
    made: dict[str, Any] = {"seconds": [], "wait": [], "rate": []}
    Digits(NODES, "sorted").gradient(index, net)  # what loads once is no part of a step

    def train(joined: p2p.Node | None) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if algorithm == TOGETHER:
                time.sleep(-time.monotonic() % (2 * pause))
            began = time.monotonic()
            optimizer.zero_grad()
            work.gradient(index, net)
            model["ballast"][0].grad = torch.zeros_like(model["ballast"][0])
            time.sleep(pause)
            optimizer.step()
            made["seconds"].append(time.monotonic() - began)
            if joined is not None:
                made["wait"].append(joined.last_step.wait)
                made["rate"].append(1 / joined.last_step.mixing_interval if joined.last_step.mixing_interval else 0.0)

    if algorithm not in (ALONE, TOGETHER):
        peers = (peer,) if peer else ()
        with p2p.join(model, optimizer, peers=peers, listen=listen, algorithm=algorithm, topology="one-peer-exponential",
                      wait_for=NODES, join_timeout=60, insecure=True) as joined:  # fmt: skip
            train(joined)
            with joined.averaged():
                made["accuracy"] = work.score(net)
            joined.consensus()
    else:
        train(None)
    print(json.dumps(made), flush=True)


# --- four of them ----------------------------------------------------------------------------------------------------


def processes(case: Case, seconds: float, megabytes: float, algorithm: str, inside: Sequence[Sequence[str]]) -> list[Any]:
    """What each says at its end."""
    hosts = [f"10.78.0.{i + 1}" if inside else "127.0.0.1" for i in range(NODES)]
    started: list[subprocess.Popen[str]] = []
    try:
        for i in range(NODES):
            pause = PAUSE * (case.slow if i == 0 else 1.0)
            words = [str(i), str(pause), str(seconds), str(megabytes), algorithm]
            words += [f"tcp://{hosts[0]}:{PORT}" if i else "", f"tcp://{hosts[i]}:{PORT + 10 * i}"]
            command = [*(inside[i] if inside else ()), sys.executable, __file__, "--node", *words]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        return [json.loads(process.communicate(timeout=seconds + 400)[0].splitlines()[-1]) for process in started]
    finally:
        for process in started:
            process.kill()


@contextmanager
def namespaces() -> Iterator[list[list[str]]]:
    """One for each process, on a common bridge, with a line of 100 Mbit each way."""
    hub = f"starlings-{os.getpid()}-hub"
    names = [f"starlings-{os.getpid()}-{i}" for i in range(NODES)]
    try:
        _run("ip", "netns", "add", hub)
        _run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", hub, "link", "set", "bridge", "up")
        for i, name in enumerate(names):
            _run("ip", "netns", "add", name)
            _run("ip", "-n", hub, "link", "add", f"v{i}", "type", "veth", "peer", "name", "wire", "netns", name)
            _run("ip", "-n", hub, "link", "set", f"v{i}", "master", "bridge", "up")
            _run("ip", "-n", name, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "wire")
            for link in ("lo", "wire"):
                _run("ip", "-n", name, "link", "set", link, "up")
            for where, link in ((hub, f"v{i}"), (name, "wire")):
                shape = "tbf rate 100mbit burst 64kb latency 100ms"
                _run("ip", "netns", "exec", where, "tc", "qdisc", "add", "dev", link, "root", *shape.split())
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in (hub, *names):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def shaped(inside: Sequence[Sequence[str]]) -> float:
    """Bytes a second over one TCP connection from the first namespace to the second."""
    script = [sys.executable, __file__, "--line"]
    with subprocess.Popen([*inside[1], *script, "10.78.0.2", "receive"], stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        sink.stdout.readline()
        _run(*inside[0], *script, "10.78.0.2", "send")
        return float(sink.communicate(timeout=60)[0])


def end(host: str, role: str) -> None:
    """One end of a connection; the receiver prints when it listens, and then the rate between first and last byte."""
    size, chunk = 25_000_000, 1 << 16
    if role == "send":
        with socket.create_connection((host, PORT), timeout=30) as there:
            there.sendall(bytes(size))
        return
    with socket.create_server((host, PORT)) as server:
        print("ready", flush=True)
        there = server.accept()[0]
        left = size - len(there.recv(chunk))
        began, rest = time.monotonic(), left
        while left > 0:
            left -= len(there.recv(chunk))
        print(rest / (time.monotonic() - began))


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def loopback(megabytes: float) -> tuple[float, float]:
    """Bytes a second, and seconds one way, that agents get out of this machine while nobody trains."""
    little, size = 0.004, 2 * megabytes
    latency = _exchange(little)
    return (size - little) * 1e6 / max(_exchange(size) - latency, 1e-9), latency


def _exchange(megabytes: float) -> float:
    """Seconds of one round of all, between nodes that do nothing else."""
    with Crew(Contender("agents", ours("swarm.py", "gossip", "plain", megabytes)), NODES) as crew:
        crew.ready()
        crew.say("fill")
        return statistics.median(span(crew.say("exchange")) for _ in range(TRIPS))


# --- and the prediction ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What is compared."""

    steps: float  # a second, mean over the nodes
    swaps: float
    waiting: float
    accuracy: float

    def __str__(self) -> str:
        return f"{self.steps:8.2f} {self.swaps:8.2f} {100 * self.waiting:7.1f} % {self.accuracy:8.3f}"


def real(made: Sequence[Any], seconds: float) -> Row:
    rates = [len(one["seconds"]) / seconds for one in made]
    swaps = [rate * statistics.mean(one["rate"]) for rate, one in zip(rates, made, strict=True)]
    waiting = sum(sum(one["wait"]) for one in made) / sum(sum(one["seconds"]) for one in made)
    return Row(statistics.mean(rates), statistics.mean(swaps), waiting, statistics.mean(one["accuracy"] for one in made))


def predicted(case: Case, alone: Sequence[Any], seconds: float, megabytes: float, line: Any) -> Row:
    """From the steps of nodes that were alone."""
    from p2p.config import LAN
    from p2p.sim.scenario import Scenario, Straggler, Until
    from p2p.sim.trial import simulate

    normal = [second for one in alone[1:] for second in one["seconds"]]
    step = statistics.mean(normal)
    factor = statistics.mean(alone[0]["seconds"]) / step
    scenario = Scenario(
        nodes=NODES, algorithm=case.algorithm, lan=line, model=megabytes * 1e6, step=step,
        blocks=math.ceil(megabytes * 1e6 / LAN.exchange.block_bytes),
        variation=statistics.stdev(normal) / step, stragglers=(Straggler(1, factor),), until=Until(time=seconds),
    )  # fmt: skip
    found = simulate(scenario)
    steps = statistics.mean(found.steps) / found.seconds
    assert found.last.accuracy is not None
    return Row(steps, found.swaps, found.waiting, found.last.accuracy)


def compare(case: Case, seconds: float, megabytes: float) -> tuple[Row, Row]:
    from p2p.net.physics import Line

    rounds = case.algorithm.startswith("gossip")
    alone = processes(case, APART, megabytes, TOGETHER if rounds else ALONE, ())
    if case.thin:
        with namespaces() as inside:
            line = Line(0.0002, bandwidth=shaped(inside))
            made = processes(case, seconds, megabytes, case.algorithm, inside)
    else:
        rate, latency = loopback(megabytes)
        line = Line(latency, bandwidth=rate)
        made = processes(case, seconds, megabytes, case.algorithm, ())
    return real(made, seconds), predicted(case, alone, seconds, megabytes, line)


def main() -> None:
    if sys.argv[1:2] == ["--node"]:
        index, pause, seconds, megabytes, algorithm, peer, listen = sys.argv[2:]
        node(int(index), float(pause), float(seconds), float(megabytes), algorithm, peer, listen)
        return
    if sys.argv[1:2] == ["--line"]:
        end(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows with this in their name")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each real run")
    parser.add_argument("--megabytes", type=float, default=4.0, help="of parameters; momentum comes on top")
    given = parser.parse_args()
    print(f"{'':22} {'':9} {'steps/s':>8} {'swaps/s':>8} {'waiting':>9} {'accuracy':>8}")
    for case in CASES:
        if given.only not in case.name:
            continue
        if case.thin and (os.geteuid() or shutil.which("tc") is None):
            print(f"{case.name}: needs Linux, root and tc")
            continue
        true, said = compare(case, given.seconds, given.megabytes)
        print(f"{case.name:22} {'real':9} {true}\n{'':22} {'simulated':9} {said}")
        off = [said.steps / true.steps - 1, said.swaps / true.swaps - 1 if true.swaps else math.nan]
        print(f"{'':22} {'off by':9} {100 * off[0]:6.0f} % {100 * off[1]:6.0f} % {100 * (said.waiting - true.waiting):6.1f} pt "
              f"{said.accuracy - true.accuracy:8.3f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
