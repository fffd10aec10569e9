"""How long a node takes for its own row, and for preparing a view, with many members.

    python scripts/bench/topology_rows.py [-n 10000]

Rows of 20 nodes in 20 rounds each, median and largest; the first row of a view also makes the plan, which is timed alone.
"""

from __future__ import annotations

import argparse
import statistics
import time

import topology

SCALING = (
    "ring",
    "chain",
    "torus",
    "binary-tree",
    "double-tree",
    "hypercube",
    "exponential",
    "one-peer-exponential",
    "exponential-matching",
    "n-peer-exponential",
    "hyper-hypercube:k=4",
    "base",
    "base:k=4",
    "d-equistatic",
    "u-equistatic",
    "od-equidyn",
    "ou-equidyn",
    "random-matching",
    "regular",
    "regular:degree=7",
    "erdos-renyi",
    "small-world",
    "epidemic-local",
    "epidemic-oracle",
    "alternating-exponential-ring",
    "two-level:inside=base",
    "adaptive",
)


def timed(spec: str, n: int) -> tuple[int, float, list[float]]:
    """(members taken, seconds to prepare, seconds per row)."""
    made = topology.make(spec)
    count = next(m for m in range(n, 0, -1) if not made.refuses(m))
    members = topology.canonical(count, 4 if spec.startswith(("two-level", "adaptive")) else 1)
    start = time.perf_counter()
    made.row(members, 0, 0)
    prepared = time.perf_counter() - start
    rows = []
    for t in range(20):
        for i in range(0, count, max(count // 20, 1)):
            start = time.perf_counter()
            made.row(members, t, i)
            rows.append(time.perf_counter() - start)
    return count, prepared, rows


def main() -> None:
    """Prints one line per family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=10_000)
    n = parser.parse_args().n
    print(f"{'topology':32} {'members':>8} {'prepare s':>10} {'row us':>8} {'largest us':>11}")
    for spec in SCALING:
        count, prepared, rows = timed(spec, n)
        print(f"{spec:32} {count:8} {prepared:10.3f} {statistics.median(rows) * 1e6:8.1f} {max(rows) * 1e6:11.1f}", flush=True)


if __name__ == "__main__":
    main()
