"""The time of a ring all-reduce: reduce-scatter, then all-gather, 2 (n - 1) sends of an n-th over each edge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]


def finish(ready: Sequence[Times], nbytes: float, bandwidth: Times, latency: Times) -> Times:
    """When each of n nodes has the sum of all that were given.

    Args:
        ready: Per bucket, in the order in which they are reduced, when each node (n,) has its own part of it, in seconds.
        nbytes: Of one bucket.
        bandwidth: Of the edge from each node to the next (n,), in bytes a second; infinite ones are possible.
        latency: Of that edge (n,), in seconds.
    """
    n = len(bandwidth)
    chunk = nbytes / n / bandwidth
    free, done = np.full(n, -np.inf), np.full(n, -np.inf)
    for own in ready:
        begin = have = np.maximum(own, done)  # one bucket after the other
        for send in range(2 * (n - 1)):
            free = np.maximum(have, free) + chunk
            have = np.roll(free + latency, 1)
            if send < n - 1:  # to be added to the own part before it goes on
                have = np.maximum(have, begin)
        done = have
    return done
