"""Membership change: how many edges of the others move when one member joins or leaves.

    python scripts/bench/topology_change.py [-n 64] [--trials 20]

For each family, the share of the edges (of a whole period, or of 8 rounds) between the old members that are gone when one more
joins, mean over trials with random ids. Where edges are fresh in each round it costs nothing: none outlives its round.
"""

from __future__ import annotations

import argparse
import random

import topology
from topology import Member

ROUNDS = 8
FRESH = {"od-equidyn", "ou-equidyn", "random-matching", "epidemic-local", "epidemic-oracle", "matcha"}
SKIPPED = {"file"}
"""What is made of a file changes with that."""
SITES = 4


def edges(made: topology.Topology, members: tuple[Member, ...]) -> set[tuple[int, str, str]]:
    """All (round, sender, receiver) of a period."""
    period = made.properties(len(members)).period or ROUNDS
    found = set()
    for t in range(period):
        for i, row in enumerate(made.whole(members, t).rows):
            found |= {(t, members[j].id, members[i].id) for j in row if i != j}
    return found


def moved(made: topology.Topology, n: int, trials: int) -> float | None:
    """The mean share that is gone; None where n + 1 is refused."""
    if made.refuses(n) or made.refuses(n + 1):
        return None
    rng, shares = random.Random(0), []
    for _ in range(trials):
        names = [f"{rng.getrandbits(40):010x}" for _ in range(n + 1)]
        members = [Member(name, f"site{i % SITES}") for i, name in enumerate(names)]
        before, after = edges(made, tuple(sorted(members[:n]))), edges(made, tuple(sorted(members)))
        shares.append(len(before - after) / max(len(before), 1))
    return sum(shares) / len(shares)


def main() -> None:
    """Prints a line per family, the steadiest first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=64)
    parser.add_argument("--trials", type=int, default=20)
    args = parser.parse_args()
    found = {name: moved(topology.make(name), args.n, args.trials) for name in topology.names() if name not in SKIPPED}
    print(f"n = {args.n} -> {args.n + 1}: share of the edges between the old members that move\n")
    for name, share in sorted(found.items(), key=lambda item: (item[1] is None, item[1])):
        note = "fresh each round" if name in FRESH else ""
        text = f"refuses {args.n} or {args.n + 1}" if share is None else f"{share:7.1%}"
        print(f"{name:32} {text:>20}  {note}")


if __name__ == "__main__":
    main()
