"""Two sites with a thin link between them, in real network namespaces: step times, use of the link, distance; gloo beside it.

    sudo python scripts/bench/wan.py                            # 2 sites of 2 nodes, 100 Mbit, 25 M parameters, steps of 150 ms
    sudo python scripts/bench/wan.py --rate 20mbit --codec auto
    sudo python scripts/bench/wan.py --parameters 1000000 --drop 10   # the link at a tenth for 10 s in the middle

The link is a veth pair with a token bucket at each end (`tc tbf`, latency 50 ms). In one run: raw TCP both ways at once, the
nodes each alone at the same time, the swarm, and gloo's all-reduce over the same four processes' link. A step computes, then
sleeps up to `--step`. Needs root on Linux; else it says so and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from p2p.units import bandwidth

SITES = ("eu", "us")
HOSTS = {"eu": "10.231.7.1", "us": "10.231.7.2"}
SAMPLED = 4096  # elements that stand for the model when the distance between sites is taken
PORT = 7400


def space(site: str) -> str:
    return f"starlings-{os.getpid()}-{site}"


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def shape(rate: str, verb: str) -> None:
    """Both ends' token buckets."""
    for site in SITES:
        bucket = ("tbf", "rate", rate, "burst", "64kb", "latency", "50ms")
        run("tc", "-n", space(site), "qdisc", verb, "dev", "wan", "root", *bucket)


@contextmanager
def namespaces(rate: str) -> Iterator[None]:
    """One namespace a site; what leaves it passes the thin link."""
    try:
        for site in SITES:
            run("ip", "netns", "add", space(site))
        run("ip", "link", "add", "wan", "netns", space("eu"), "type", "veth", "peer", "name", "wan", "netns", space("us"))
        for site in SITES:
            run("ip", "-n", space(site), "addr", "add", f"{HOSTS[site]}/24", "dev", "wan")
            for device in ("lo", "wan"):
                run("ip", "-n", space(site), "link", "set", device, "up")
        shape(rate, "add")
        yield
    finally:
        for site in SITES:
            subprocess.run(("ip", "netns", "del", space(site)), capture_output=True, check=False)


class Inside:
    """A process of this file in a site's namespace; what it says goes to a file, so that it never waits for a reader."""

    def __init__(self, site: str, *arguments: str) -> None:
        command = ("ip", "netns", "exec", space(site), sys.executable, __file__, *arguments)
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 closed with the process that reads it
        self.process = subprocess.Popen(command, stdout=self._said, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def end(self) -> dict[str, object]:
        """Its last line, as it is JSON. Raises SystemExit where it failed."""
        if self.process.wait():
            raise SystemExit(f"a process failed: {self.process.returncode}")
        self._said.seek(0)
        found: dict[str, object] = json.loads(self._said.read().strip().splitlines()[-1])
        return found


def crossed() -> list[int]:
    """Bytes that have left each site."""
    file = "/sys/class/net/wan/statistics/tx_bytes"
    return [int(run("ip", "netns", "exec", space(site), "cat", file)) for site in SITES]


def ended(inside: list[Inside]) -> list[dict[str, object]]:
    """What each said last."""
    try:
        return [one.end() for one in inside]
    finally:
        for one in inside:
            one.process.kill()


# --- what runs inside ------------------------------------------------------------------------------------------------


def raw(site: str, seconds: float) -> None:
    """Send to the other site as fast as TCP does, and receive from it at once."""
    server = socket.create_server((HOSTS[site], PORT))
    other, count = HOSTS[SITES[1 - SITES.index(site)]], [0, 0]
    time.sleep(0.5)
    outward = socket.create_connection((other, PORT), timeout=5)
    inward, _ = server.accept()
    began, chunk = time.monotonic(), bytes(1 << 16)

    def receive() -> None:
        while data := inward.recv(1 << 16):
            if time.monotonic() - began > 1.0:  # slow start is over
                count[0] += len(data)

    thread = threading.Thread(target=receive)
    thread.start()
    while time.monotonic() - began < 1.0 + seconds:
        outward.sendall(chunk)
    outward.shutdown(socket.SHUT_WR)
    inward.settimeout(2)
    thread.join(seconds + 10)
    print(json.dumps({"rate": count[0] / (time.monotonic() - began - 1.0)}), flush=True)


def node(given: argparse.Namespace) -> None:
    """One trainer; alone where there is no address to join and none to wait for."""
    import torch
    from torch import nn

    import p2p

    torch.set_num_threads(1)
    torch.manual_seed(given.index)
    model = nn.ParameterList([nn.Parameter(0.1 * torch.randn(given.parameters // 10)) for _ in range(10)])
    for parameter in model:
        parameter.grad = 1e-3 * torch.randn_like(parameter)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    seen, steps, cpu = [], [], []
    with p2p.join(model, optimizer, peers=given.peers, listen=given.listen, insecure=True, site=given.site, codec=given.codec,
                  topology=given.topology, wait_for=given.wait_for, join_timeout=120) as member:  # fmt: skip
        until = time.monotonic() + given.seconds
        while (began := time.monotonic()) < until:
            used = time.process_time()
            optimizer.step()
            time.sleep(max(0.0, given.step - (time.monotonic() - began)))
            steps.append(time.monotonic() - began)
            cpu.append(time.process_time() - used)
            if len(steps) % 10 == 0:
                sampled = torch.cat([parameter.detach()[: SAMPLED // 10] for parameter in model])
                seen.append((time.monotonic(), sampled.tolist()))
        mixing = member.last_step.mixing_interval if member.last_step else 0.0
        if given.wait_for > 1:
            time.sleep(2.0)  # all are done: nobody is left by another
    half = len(steps) // 4
    found = {"step": statistics.median(steps[half:]), "cpu": statistics.fmean(cpu[half:]), "seen": seen, "mixing": mixing}
    print(json.dumps(found), flush=True)


def gloo(given: argparse.Namespace) -> None:
    """All-reduces of the same size: seconds of one."""
    import datetime

    import torch
    import torch.distributed as dist

    patience = datetime.timedelta(seconds=600)
    dist.init_process_group("gloo", f"tcp://{HOSTS['eu']}:{PORT + 9}", patience, 4, given.index)
    tensor = torch.ones(given.parameters)
    dist.all_reduce(tensor[:1000])
    began = time.monotonic()
    dist.all_reduce(tensor)
    print(json.dumps({"seconds": time.monotonic() - began}), flush=True)


# --- the parts of the run ----------------------------------------------------------------------------------------------


def trainers(given: argparse.Namespace, together: bool) -> list[Inside]:
    """Four of them, two a site."""
    made = []
    for index in range(4):
        site = SITES[index // 2]
        peers = f"tcp://{HOSTS['eu']}:{PORT}" if together and index else ""
        made.append(Inside(site, "--role", "node", "--index", str(index), "--site", site, "--peers", peers,
            "--listen", f"tcp://{HOSTS[site]}:{PORT + 10 * index}", "--wait-for", str(4 if together else 1),
            "--parameters", str(given.parameters), "--step", str(given.step), "--seconds", str(given.seconds),
            "--codec", given.codec, "--topology", given.topology))  # fmt: skip
        if not index:
            time.sleep(2.0)
    return made


def distances(found: list[dict[str, object]]) -> list[float]:
    """Root mean square between the two sites' mean models, look by look."""
    import numpy as np

    seen = [np.array([values for _, values in one["seen"]]) for one in found]  # type: ignore[attr-defined]
    looks = min(map(len, seen))
    eu, us = ((seen[i][:looks] + seen[i + 1][:looks]) / 2 for i in (0, 2))
    return [float(value) for value in np.sqrt(((eu - us) ** 2).mean(1))]


def watch(given: argparse.Namespace, swarm: list[Inside]) -> list[list[float]]:
    """Bytes a second out of each site, second by second, while the swarm lives."""
    rates, before, at, began = [], crossed(), time.monotonic(), time.monotonic()
    drops = {given.seconds * 0.5: False, given.seconds * 0.5 + given.drop: True} if given.drop else {}
    while all(one.lives for one in swarm):
        time.sleep(1.0)
        now, after = time.monotonic(), crossed()
        rates.append([(b - a) / (now - at) for a, b in zip(before, after, strict=True)])
        before, at = after, now
        for when in [when for when in drops if now - began > when]:
            shape(given.rate if drops.pop(when) else f"{int(bandwidth(given.rate) * 0.8)}bit", "replace")
    return rates


def report(given: argparse.Namespace) -> None:
    with namespaces(given.rate):
        tcp = min(float(str(one["rate"])) for one in ended([Inside(site, "--role", "raw", "--site", site) for site in SITES]))
        print(f"raw TCP, both ways at once   {tcp * 8 / 1e6:8.1f} Mbit/s each", flush=True)
        alone = ended(trainers(given, together=False))
        steps = [statistics.median(float(str(one[key])) for one in alone) for key in ("step", "cpu")]
        print(f"alone, all at the same time  {1e3 * steps[0]:8.1f} ms a step, {1e3 * steps[1]:.1f} ms of CPU", flush=True)
        processes = trainers(given, together=True)
        rates = watch(given, processes)
        swarm = ended(processes)
        together = [statistics.median(float(str(one[key])) for one in swarm) for key in ("step", "cpu", "mixing")]
        print(f"the swarm                    {1e3 * together[0]:8.1f} ms a step, {1e3 * together[1]:.1f} ms of CPU; "
              f"a block is exchanged every {together[2]:.1f} steps")  # fmt: skip
        busy = [max(pair) for pair in rates if max(pair) > 0.1 * tcp][5:-3]  # while all train
        print(f"use of the link              {statistics.median(busy) * 8 / 1e6:8.1f} Mbit/s, "
              f"{statistics.median(busy) / tcp:.0%} of raw TCP (the busier way)")  # fmt: skip
        print("Mbit/s over time             " + " ".join(f"{max(pair) * 8 / 1e6:.0f}" for pair in rates))
        print("distance between sites       " + " ".join(f"{value:.1e}" for value in distances(swarm)))
        if not given.no_gloo:
            arguments = ("--role", "gloo", "--parameters", str(given.parameters))
            reduced = ended([Inside(SITES[index // 2], *arguments, "--index", str(index)) for index in range(4)])
            print(f"gloo, one all-reduce         {max(float(str(one['seconds'])) for one in reduced):8.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="100mbit", help="of the link between the sites, each way")
    parser.add_argument("--parameters", type=int, default=25_000_000)
    parser.add_argument("--step", type=float, default=0.15, help="seconds")
    parser.add_argument("--seconds", type=float, default=30.0, help="that the swarm trains")
    parser.add_argument("--codec", default="raw")
    parser.add_argument("--topology", default="two-level")
    parser.add_argument("--drop", type=float, default=0.0, help="seconds in which the link has a tenth of its rate")
    parser.add_argument("--no-gloo", action="store_true")
    parser.add_argument("--role", choices=("raw", "node", "gloo"), help=argparse.SUPPRESS)
    for name in ("--site", "--peers", "--listen"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    for name in ("--index", "--wait-for"):
        parser.add_argument(name, type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role is None:
        if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
            print("skipped: network namespaces need root, ip and tc")
            return
        with tempfile.TemporaryDirectory() as folder:
            os.environ["STARLINGS_RUN_DIR"] = ""
            os.chdir(folder)
            report(given)
    elif given.role == "raw":
        raw(given.site, 4.0)
    else:
        (node if given.role == "node" else gloo)(given)


if __name__ == "__main__":
    __file__ = str(Path(__file__).resolve())
    main()
