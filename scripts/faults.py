"""Faults on real processes: what happens, in figures, and whether that is what is promised.

python scripts/faults.py kill --seeds 20     # 16 nodes, SIGKILL to 4 of them at random steps
python scripts/faults.py simulated           # the same to membership in virtual time, 1,000 seeds
python scripts/faults.py stop                # SIGSTOP to 1 of 4 for 5 s, then for 60 s
python scripts/faults.py partition           # 3 + 3 nodes cut apart for 30 s (Linux, root)
python scripts/faults.py rolling             # all 6 restarted, the founder first
python scripts/faults.py dial-only           # one node that nobody can dial
python scripts/faults.py ipv6                # a swarm on ::1
python scripts/faults.py end                 # Ctrl-C, SIGTERM, an exception, SIGKILL of the launcher

Each prints a line per run and a verdict; the exit code is 0 where all held. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.integration.flock import ROOT, WALKER, Flock, Halves, alive, until
from tests.simulation.membership_world import World

STARTED = 300.0
"""Seconds for processes to start."""


class Verdict:
    """What was promised, and whether it held."""

    def __init__(self) -> None:
        self.failed = False

    def that(self, held: bool, what: str) -> None:
        print(f"  {'ok    ' if held else 'BROKEN'} {what}", flush=True)
        self.failed |= not held


@contextmanager
def flock(nodes: int, **settings: str) -> Iterator[Flock]:
    """So many walkers in one swarm, which all know each other."""
    with tempfile.TemporaryDirectory() as folder, Flock(Path(folder)) as found:
        found.start(*range(nodes), **settings)
        found.wait_for_views(*range(nodes), seconds=STARTED)
        yield found


def say(index: int, found: Flock) -> str:
    return str(found.states()[index]["id"])


# --- 1 -------------------------------------------------------------------------------------------------------------


def kill(verdict: Verdict, options: argparse.Namespace) -> None:
    for seed in range(options.first, options.first + options.seeds):
        _kill(verdict, seed, options)


def _kill(verdict: Verdict, seed: int, options: argparse.Namespace) -> None:
    rng = random.Random(seed)
    with flock(options.nodes, ALGORITHM=options.algorithm) as found:
        victims = rng.sample(range(options.nodes), options.victims)
        left = [index for index in range(options.nodes) if index not in victims]
        began = time.time()
        for victim in victims:
            goal = found.step(victim) + rng.randrange(1, 40)
            until(lambda v=victim, g=goal: found.step(v) >= g, "the step of its death", STARTED)  # type: ignore[misc]
            found.signal(signal.SIGKILL, victim)
        before = found.states()
        took = until(lambda: found.views_right(*left), "right views", 120)
        waits = [event["wait"] for index in left for event in found.steps(index, began)]
        after = found.states()
        threads = max(after[i]["threads"] - before[i]["threads"] for i in left)
        print(f"kill, seed {seed}: {options.nodes} nodes, {victims} killed, {options.algorithm}")
        verdict.that(took <= 20, f"all {len(left)} views right after {took:.1f} s (promised: 20)")
        verdict.that(max(waits) < 3, f"the longest wait of {len(waits)} steps: {max(waits):.2f} s")
        verdict.that(threads <= 0, f"threads {threads:+d} at most in any survivor")
        most = 2 * (len(left) - 1)
        hung_up = until(lambda: max(state["dialled"] for i, state in found.states().items() if i in left) <= most, "few", 90)
        verdict.that(hung_up < 60, f"no connection to the dead {took + hung_up:.0f} s later; {most} at most to the living")
        found.stop(120)
        verdict.that(all(found.codes[i] == 0 for i in left), "the survivors left with code 0")


# --- 1, in virtual time ----------------------------------------------------------------------------------------------


def simulated(verdict: Verdict, options: argparse.Namespace) -> None:
    """Membership alone: the survivors' connections to the killed close, as TCP's do."""
    took = sorted(_simulated(seed, options) for seed in range(options.first, options.first + options.seeds))
    print(f"simulated: {options.victims} of {options.nodes} killed within 2 s, {options.seeds} seeds")
    late = sum(seconds > 20 for seconds in took)
    verdict.that(late == 0, f"right views after {median(took):.1f} s, at most {took[-1]:.1f} s; {late} after more than 20")


def _simulated(seed: int, options: argparse.Namespace) -> float:
    """Virtual seconds from the last death to right views."""
    world = World(seed)
    nodes = world.flock(options.nodes)
    world.run(10 + world.rng.random())
    for victim in world.rng.sample(nodes, options.victims):
        world.kill(victim)
        for observer in world.machines:
            world.hint(observer, victim)
        world.run(2 * world.rng.random() / options.victims)
    return world.run(120, world.agreed)


# --- 2 -------------------------------------------------------------------------------------------------------------


def stop(verdict: Verdict, options: argparse.Namespace) -> None:
    for seconds in options.seconds:
        _stop(verdict, seconds)


def _stop(verdict: Verdict, seconds: float) -> None:
    with flock(4) as found:
        time.sleep(8)
        stopped = time.time()
        found.signal(signal.SIGSTOP, 3)
        time.sleep(seconds)
        found.signal(signal.SIGCONT, 3)
        resumed = time.time()
        again = until(lambda: any(event["partners"] for event in found.steps(3, resumed)), "it exchanges", 60)
        back = until(lambda: found.views_right(0, 1, 2, 3), "right views", 60)
        time.sleep(3)
        print(f"stop: 1 of 4 for {seconds:g} s")
        before = median(event["seconds"] for i in range(3) for event in found.steps(i, stopped - 5, stopped))
        meanwhile = median(event["seconds"] for i in range(3) for event in found.steps(i, stopped + 1, resumed))
        verdict.that(
            meanwhile < 1.2 * before, f"the others' median step {meanwhile * 1000:.1f} ms, before {before * 1000:.1f} ms"
        )
        news = {how for index in range(3) for how in found.news(index, say(3, found))}
        dead = seconds > 30
        verdict.that(("dead" in news) == dead, f"{'declared dead' if dead else 'never dead'}: {sorted(news)}")
        verdict.that(again <= (10 if dead else 2), f"exchanges with it after {again:.2f} s, one view after {back:.2f} s")
        returns = [event for event in found.events(3) if event["event"] == "back"]
        verdict.that(bool(returns) == dead, f"its return: {[(e['behind'], e['outdated']) for e in returns]}")
        ahead = max(found.step(index) for index in range(3)) - found.step(3)
        distance = found.distance(0, 1, 2, 3)
        verdict.that(not dead or ahead < 50, f"{ahead} steps behind the first; distance of the models {distance:.2g}")
        found.stop()


# --- 3 -------------------------------------------------------------------------------------------------------------


def partition(verdict: Verdict, options: argparse.Namespace) -> None:
    why_not = Halves.why_not()
    if why_not:
        return print(f"partition: skipped, {why_not}")
    halves = ((0, 1, 2), (3, 4, 5))
    with (
        tempfile.TemporaryDirectory() as folder,
        Halves() as wire,
        Flock(Path(folder), host=Halves.HOSTS[0], port=7000) as found,
    ):
        found.start(*halves[0], inside=wire.inside(0))
        found.start(*halves[1], inside=wire.inside(1), host=Halves.HOSTS[1])
        found.wait_for_views(*range(6), seconds=STARTED)
        time.sleep(10)
        together = found.apart(*halves)
        wire.cut()
        began, steps = time.time(), [found.step(index) for index in range(6)]
        time.sleep(options.seconds)
        print(f"partition: 3 + 3 for {options.seconds:g} s")
        gained = [found.step(index) - step for index, step in enumerate(steps)]
        waits = max(event["wait"] for index in range(6) for event in found.steps(index, began))
        verdict.that(min(gained) > options.seconds * 8, f"steps meanwhile {gained}, longest wait {waits:.2f} s")
        verdict.that(all(found.views_right(*half) for half in halves), "each half is of one mind: itself")
        apart = found.apart(*halves)
        wire.heal()
        took = until(lambda: found.views_right(*range(6)), "one view", 120)
        verdict.that(took <= 30, f"one view after {took:.1f} s (promised: 30)")
        near = took + until(lambda: found.apart(*halves) <= together, "one model", 60)
        verdict.that(near <= 30, f"distance of the halves {together:.3g}, apart {apart:.3g}, back below after {near:.1f} s")
        found.stop()


# --- 4 -------------------------------------------------------------------------------------------------------------


def rolling(verdict: Verdict, options: argparse.Namespace) -> None:
    everybody = range(6)
    with flock(6) as found:
        ids = [say(index, found) for index in everybody]
        began = time.time()
        for index in everybody:
            others = [other for other in everybody if other != index]
            peer = str(found.states()[others[0]]["address"])
            found.signal(signal.SIGTERM, index)
            until(lambda i=index: i in found.codes, "it has left", 30)  # type: ignore[misc]
            found.start(index, peer=peer)
            until(lambda: found.step(index) > 0, "it is back", STARTED)  # noqa: B023
        took = until(lambda: found.views_right(*everybody), "right views", 60)
        print(f"rolling: all 6 restarted within {time.time() - began:.0f} s")
        verdict.that(True, f"right views {took:.1f} s after the last restart")
        verdict.that([say(index, found) for index in everybody] == ids, "the same identities")
        moments = sorted(event["time"] for index in everybody for event in found.steps(index, began))
        halts = max(after - before for before, after in pairwise(moments))
        verdict.that(halts < 1, f"the longest time without any step: {halts:.2f} s")
        verdict.that(min(found.step(i) for i in everybody) > 100, f"steps at the end {[found.step(i) for i in everybody]}")
        found.stop()


# --- 5 -------------------------------------------------------------------------------------------------------------


def dial_only(verdict: Verdict, options: argparse.Namespace) -> None:
    with flock(5) as found:
        found.start(5, ADVERTISE="tcp://127.0.0.1:9", DIAL_ONLY="1")  # nobody listens there, as behind a firewall
        found.wait_for_views(*range(6), seconds=STARTED)
        time.sleep(options.seconds)
        print(f"dial-only: 1 of 6, for {options.seconds:g} s")
        _learnt(verdict, found, 6)
        news = {how for index in range(5) for how in found.news(index, say(5, found))}
        verdict.that(not news & {"suspect", "dead"}, f"with the others it was {sorted(news)}")
        found.stop()


def ipv6(verdict: Verdict, options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, Flock(Path(folder), host="::1") as found:
        found.start(*range(4))
        found.wait_for_views(*range(4), seconds=STARTED)
        time.sleep(options.seconds)
        print(f"ipv6: 4 nodes on ::1, for {options.seconds:g} s")
        _learnt(verdict, found, 4)
        verdict.that(all("[::1]" in state["address"] for state in found.states().values()), "all addresses are IPv6 ones")
        found.stop()


def _learnt(verdict: Verdict, found: Flock, nodes: int) -> None:
    accuracies = [state["accuracy"] for state in found.states().values()]
    verdict.that(min(accuracies) > max(accuracies) - 0.05, f"accuracies {[round(a, 3) for a in accuracies]}")
    verdict.that(found.views_right(*range(nodes)), "all views right")


# --- 7 -------------------------------------------------------------------------------------------------------------


def end(verdict: Verdict, options: argparse.Namespace) -> None:
    ways = (("Ctrl-C", signal.SIGINT, 130), ("SIGTERM", signal.SIGTERM, 143), ("SIGKILL", signal.SIGKILL, -9))
    for name, number, code in ways:
        with tempfile.TemporaryDirectory() as folder:
            _end(verdict, Path(folder), name, number, code)
    with tempfile.TemporaryDirectory() as folder:
        _fails(verdict, Path(folder))


def _end(verdict: Verdict, folder: Path, name: str, number: signal.Signals, code: int) -> None:
    """A launched run of 4 is told to end."""
    files = _temporary()
    launcher = _launch(folder, fails_at=-1)
    pids = _running(folder, 4)
    began = time.monotonic()
    launcher.send_signal(number)
    launcher.wait(30)
    until(lambda: not any(map(alive, pids)), "all have ended", 30)
    took = time.monotonic() - began
    print(f"end: a run of 4, {name}")
    verdict.that(took <= 5, f"no process left after {took:.2f} s (promised: 5)")
    verdict.that(launcher.returncode == code, f"exit code {launcher.returncode}")
    _clean(verdict, folder, files)


def _fails(verdict: Verdict, folder: Path) -> None:
    """Each script raises; the run ends by itself."""
    files = _temporary()
    launcher = _launch(folder, fails_at=40)
    pids = _running(folder, 4)
    launcher.wait(STARTED)
    print("end: an exception in each of 4")
    verdict.that(not any(map(alive, pids)), "no process left")
    verdict.that(launcher.returncode == 1, f"exit code {launcher.returncode}")
    logs = [(folder / f"node-{index}.log").read_text().rstrip() for index in range(4)]
    verdict.that(all(text.endswith("RuntimeError: the user's own") for text in logs), "the user's exception, at the log's end")
    _clean(verdict, folder, files)


def _launch(folder: Path, fails_at: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(ROOT / "scripts" / "launch.py"), "-n", "4", "--run-dir", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([*command, str(WALKER), "0.05", str(fails_at), "lan"], stdout=subprocess.DEVNULL, env=environment)


def _running(folder: Path, nodes: int) -> list[int]:
    """The pids of all nodes, once each has taken a step."""
    until(lambda: len(list(folder.glob("state-*.json"))) == nodes, "all train", STARTED)
    return [json.loads((folder / f"state-{index}.json").read_text())["pid"] for index in range(nodes)]


def _temporary() -> set[str]:
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith(("starlings", "tmp"))}


def _clean(verdict: Verdict, folder: Path, before: set[str]) -> None:
    """No port is held, and no file is left outside the run directory."""
    ports = [line.rpartition(":")[2] for line in _addresses(folder)]
    listening = {line.split()[1].rpartition(":")[2] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
    held = [port for port in ports if f"{int(port):04X}" in listening]
    verdict.that(not held, f"no socket left of {len(ports)} ports: {held}")
    left = sorted(_temporary() - before - {folder.name})
    verdict.that(not left, f"no temporary file left: {left}")


def _addresses(folder: Path) -> list[str]:
    return [json.loads(path.read_text())["address"] for path in folder.glob("state-*.json")]


WHAT = {
    "kill": kill,
    "simulated": simulated,
    "stop": stop,
    "partition": partition,
    "rolling": rolling,
    "dial-only": dial_only,
    "ipv6": ipv6,
    "end": end,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    faults = parser.add_subparsers(dest="fault", required=True)
    parsers = {name: faults.add_parser(name) for name in WHAT}
    for name, seeds in (("kill", 1), ("simulated", 1000)):
        parsers[name].add_argument("--seeds", type=int, default=seeds)
        parsers[name].add_argument("--first", type=int, default=0)
        parsers[name].add_argument("--nodes", type=int, default=16)
        parsers[name].add_argument("--victims", type=int, default=4)
    parsers["kill"].add_argument("--algorithm", default="async")
    parsers["stop"].add_argument("--seconds", type=float, nargs="+", default=[5, 60])
    for name, seconds in (("partition", 30), ("dial-only", 40), ("ipv6", 20)):
        parsers[name].add_argument("--seconds", type=float, default=seconds)
    options = parser.parse_args()
    verdict = Verdict()
    WHAT[options.fault](verdict, options)
    print("broken" if verdict.failed else "all held")
    return int(verdict.failed)


if __name__ == "__main__":
    sys.exit(main())
