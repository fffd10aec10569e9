"""Does `plan` find what simulating everything would? Ten small cases, brute force on the simulator beside it.

    python scripts/bench/planning.py            # all ten
    python scripts/bench/planning.py --cases 3

Printed per case: what plan puts first (it simulates a few, too), how much longer that takes than the best of all, the error of
plan's model there, and its largest one over all ways that the simulator finishes.
"""

from __future__ import annotations

import argparse
from typing import Any

from p2p.planning.model import predict
from p2p.planning.search import candidates, plan
from p2p.sim.pool import simulate_all

SPACE: dict[str, Any] = {
    "topology": ["one-peer-exponential", "ring", "complete"],
    "algorithm": ["async", "async:period=4", "gossip:deadline=off", "gossip:deadline=off,overlap=yes"],
    "until": "loss=0.05,time=2min",
}
CASES: tuple[dict[str, Any], ...] = (
    {"nodes": 4},
    {"nodes": 4, "lan": "1gbit,1ms"},
    {"nodes": 4, "straggler": "1x3"},
    {"nodes": 6, "model-size": "10MB"},
    {"nodes": 6, "variation": 0.3},
    {"nodes": 6, "lan": "2gbit,1ms", "straggler": "1x2"},
    {"nodes": 8, "model-size": "200MB"},
    {"nodes": 8, "step-time": "1s"},
    {"nodes": 8, "sites": 2, "wan": "10gbit,20ms"},
    {"nodes": 8, "sites": 2, "wan": "1gbit,20ms"},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=len(CASES), help="only the first ones")
    for case in CASES[: parser.parse_args().cases]:
        first = plan(SPACE | case).front[0]
        chosen = first.scenario
        every, _ = candidates(SPACE | case)
        times = {run.scenario: run.reached for run in simulate_all(every) if run.reached is not None}
        best = min(times, key=times.__getitem__)
        worst = max((predict(one).seconds / took - 1 for one, took in times.items()), key=abs)
        behind = times[chosen] / times[best] - 1 if chosen in times else float("inf")
        same = "the best" if chosen == best else f"{100 * behind:.1f} % behind {best.choice}"
        own = predict(chosen).seconds / times[chosen] - 1 if chosen in times else float("inf")
        print(f"{case}: {chosen.choice}, {same}; model's error {100 * own:+.0f} %, at most {100 * worst:+.0f} %", flush=True)


if __name__ == "__main__":
    main()
