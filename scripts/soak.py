"""Random fault schedules in the simulator: every invariant after every one of them.

    python scripts/soak.py                    # 200 seeds
    python scripts/soak.py --seed 17          # one again, with its events

Ends with code 1 if any seed failed, and prints for each of those the command that replays it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from p2p.sim import invariants, soak
from p2p.sim.swarm import SimulatedSwarm


def played(seed: int) -> tuple[str, SimulatedSwarm | None]:
    """What was wrong (empty if nothing), and the swarm as it ended."""
    torch.set_num_threads(1)
    made: list[SimulatedSwarm] = []

    def make(*arguments: object, **settings: object) -> SimulatedSwarm:
        made.append(SimulatedSwarm(*arguments, **settings))  # type: ignore[arg-type]
        return made[-1]

    scenario = soak.draw(seed)
    try:
        swarm = scenario.play(make)
        swarm.schedule.assert_fired()
        invariants.check(swarm, wait=scenario.patience)
    except Exception as error:  # whatever it is, the other seeds are to be played too
        return f"{type(error).__name__}: {error}", made[-1] if made else None
    return "", swarm


def verdict(seed: int) -> tuple[int, str]:
    return seed, played(seed)[0]


def replay(seed: int) -> int:
    """One seed, with everything that happened."""
    wrong, swarm = played(seed)
    print(soak.draw(seed))
    print("\n".join(swarm.journal.lines if swarm else []))
    print(wrong or "all invariants hold")
    return bool(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="play this one alone, and print its events")
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed)
    began, failed = time.monotonic(), 0
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for seed, wrong in pool.map(verdict, range(options.first, options.first + options.seeds)):
            if wrong:
                failed += 1
                print(f"seed {seed}: {wrong}\n    replay: python scripts/soak.py --seed {seed}", flush=True)
    print(f"{options.seeds - failed} of {options.seeds} seeds passed in {time.monotonic() - began:.0f} s")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
