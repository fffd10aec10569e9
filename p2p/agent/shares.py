"""Who should work on what: weighted rendezvous hashing, the greedy split, and speeds with hysteresis. Pure arithmetic.

Nothing here has to agree between nodes for work to be done: a claim settles what two of them plan for the same chunk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

STRAGGLER = 1.2
"""A node that takes fewer times as long as the fastest counts as equally fast (Malleus, arXiv 2410.13333)."""
CHANGE = 0.3
"""A slowness that changed by a smaller part is no reason for another plan (the same)."""


def scores(node: str, chunks: npt.NDArray[np.int64], slowness: float = 1.0) -> Floats:
    """How much each chunk belongs to a node: the node with the highest score is its home.

    Weighted rendezvous hashing by the logarithmic method (Schindelhauer and Schomaker, 2005): a node's share of homes is
    proportional to 1 / slowness, and a member more or less moves only the chunks that it wins or held.
    """
    return -1.0 / (slowness * np.log(_uniform(node, chunks)))


def is_home(node: str, chunks: npt.NDArray[np.int64], slowness: Mapping[str, float]) -> npt.NDArray[np.bool_]:
    """Which of the chunks have their home at `node`, among the nodes in `slowness`."""
    own = scores(node, chunks, slowness[node])
    rivals = [scores(other, chunks, slow) for other, slow in slowness.items() if other != node]
    return np.logical_and.reduce([own > rival for rival in rivals]) if rivals else np.ones(len(chunks), dtype=bool)


def absorbed(finish: float, queues: Sequence[int], slowness: Sequence[float]) -> int:
    """How many more chunks nodes with these queues complete before `finish` (in chunk times of a node of slowness 1).

    Giving each chunk to whoever completes it first is the best split there is; so the next one is a node's own exactly if
    the others don't complete all that is left before it would be done with it.
    """
    return sum(max(0, math.ceil(finish / slow) - 1 - queue) for queue, slow in zip(queues, slowness, strict=True))


def slowness(paces: Mapping[str, float]) -> dict[str, float]:
    """How many times as long as the fastest each node takes; 1 for small differences, and where nothing is measured (0)."""
    fastest = min((pace for pace in paces.values() if pace > 0), default=1.0)
    rates = {node: pace / fastest for node, pace in paces.items()}
    return {node: rate if rate >= STRAGGLER else 1.0 for node, rate in rates.items()}


def differs(old: Mapping[str, float], new: Mapping[str, float]) -> bool:
    """Whether speeds have moved so far that another plan is worth it; members are the same."""
    return any(max(new[node] / old[node], old[node] / new[node]) >= 1 + CHANGE for node in new)


def _uniform(node: str, chunks: npt.NDArray[np.int64]) -> Floats:
    """A hash of (node, chunk), strictly between 0 and 1."""
    key = np.uint64(int.from_bytes(blake2b(node.encode(), digest_size=8).digest(), "big"))
    mixed = mix(mix(chunks.astype(np.uint64)) ^ key)
    return ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) / float(1 << 53)


def mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): every bit of the result depends on every bit of `x`."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
