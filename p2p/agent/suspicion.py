"""How long a suspect has to refute, and how far a node trusts its own judgement (Lifeguard).

Dadgar, Phillips, Currey: "Lifeguard: Local Health Awareness for More Accurate Failure Detection" (2018). The timeout
starts long and shrinks to its minimum as independent accusers confirm; a node that finds itself slow probes less often.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque

from p2p.config import MembershipConfig


def suspicion_bounds(config: MembershipConfig, live: int) -> tuple[float, float]:
    """Shortest and longest timeout in seconds, for a swarm of `live` nodes."""
    scale = max(1.0, math.log10(max(1, live)))
    shortest = max(config.suspicion_floor, config.suspicion_multiplier * scale * config.probe_interval)
    return shortest, config.suspicion_factor * shortest


def confirmations_wanted(config: MembershipConfig, live: int) -> int:
    """Accusers besides the first that bring the timeout down to its minimum; 0 where there are too few others to ask."""
    wanted = config.suspicion_multiplier - 2
    return wanted if live - 2 >= wanted else 0


def suspicion_timeout(shortest: float, longest: float, wanted: int, confirmed: int) -> float:
    """Seconds from the first accusation; falls with the logarithm of the confirmations."""
    if wanted < 1:
        return shortest
    share = math.log(confirmed + 1) / math.log(wanted + 1)
    return max(shortest, longest - share * (longest - shortest))


def sync_period(config: MembershipConfig, live: int) -> float:
    """Seconds between push-pulls; longer in swarms above 32, where each costs more."""
    return config.sync_interval * (max(0, math.ceil(math.log2(max(1, live)) - 5)) + 1)


class Suspicion:
    """One suspect's case: when it began, how long it may last, who accuses, how often the suspect was called and when last."""

    def __init__(self, bounds: tuple[float, float], wanted: int, accuser: str, now: float) -> None:
        self.began = now
        self.accusers = {accuser}
        self.calls = 0
        self.called = now
        self.wanted = wanted
        self._bounds = bounds

    @property
    def deadline(self) -> float:
        """When the suspect is dead, unless it refutes."""
        return self.began + suspicion_timeout(*self._bounds, self.wanted, len(self.accusers) - 1)

    def confirm(self, accuser: str) -> bool:
        """Whether this accuser is a new one that still counts."""
        if accuser in self.accusers or len(self.accusers) > self.wanted:
            return False
        self.accusers.add(accuser)
        return True


class LocalHealth:
    """0 is well; each point stretches the probe interval by one more of itself."""

    UNWELL = 4
    """From here on, a node accuses at most one other per probe interval: it is likely itself to blame."""

    def __init__(self, config: MembershipConfig) -> None:
        self._worst = config.health_max - 1
        self._interval = config.probe_interval
        self._accused = -math.inf
        self.score = 0

    def add(self, points: int) -> None:
        """Worse by so many points, or better."""
        self.score = min(max(self.score + points, 0), self._worst)

    def may_accuse(self, now: float) -> bool:
        """Whether one more accusation is in order now; if so, it counts as made."""
        if self.score >= self.UNWELL and now - self._accused < self._interval:
            return False
        self._accused = now
        return True


class RoundTrips:
    """The 99th percentile of the last hundred probes' round trips."""

    WINDOW = 100

    def __init__(self) -> None:
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, seconds: float) -> None:
        """One more measurement."""
        if len(self._recent) == self.WINDOW:
            oldest = self._recent.popleft()
            del self._sorted[bisect_left(self._sorted, oldest)]
        self._recent.append(seconds)
        insort(self._sorted, seconds)

    @property
    def p99(self) -> float:
        """Seconds; 0 before anything is measured."""
        return self._sorted[(len(self._sorted) - 1) * 99 // 100] if self._sorted else 0.0
