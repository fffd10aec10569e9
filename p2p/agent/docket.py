"""The open suspicions: each ends in a refutation or at its deadline, which confirmations bring nearer.

Twice before, the suspect is called by each who still suspects it: gossip may have missed one with the refutation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, KeysView
from functools import partial

from p2p.agent.records import LIVE
from p2p.agent.roster import Roster
from p2p.agent.suspicion import Suspicion, confirmations_wanted, suspicion_bounds
from p2p.agent.timers import Timers
from p2p.config import MembershipConfig


class Docket:
    """One suspicion per suspect; `call` tells a suspect what it is accused of, `bury` also takes the reason."""

    def __init__(
        self,
        roster: Roster,
        config: MembershipConfig,
        timers: Timers,
        call: Callable[[str, float], None],
        bury: Callable[[str, str, float], None],
    ) -> None:
        self._roster, self._config, self._timers = roster, config, timers
        self._call, self._bury = call, bury
        self._open: dict[str, Suspicion] = {}
        self._leads = (config.suspicion_floor / 2, config.probe_interval)
        self._not_before = -math.inf

    def __contains__(self, node: str) -> bool:
        return node in self._open

    @property
    def suspects(self) -> KeysView[str]:
        """Whose time is running."""
        return self._open.keys()

    def open(self, node: str, accuser: str, since: float) -> None:
        """The time of a suspect runs from `since`; an open case begins anew."""
        self._open.pop(node, None)
        witnesses = self._roster.live - len(self._open)  # who is no suspect, and this one
        wanted = confirmations_wanted(self._config, witnesses)
        self._open[node] = Suspicion(suspicion_bounds(self._config, self._roster.live), wanted, accuser, since)
        self._arm(node)
        if wanted == 0:
            self._hurry()

    def close(self, node: str) -> None:
        """It refuted, died or left; a node without a case is fine."""
        if self._open.pop(node, None):
            self._timers.cancel(("suspicion", node))

    def confirm(self, node: str, accuser: str) -> bool:
        """Whether one more accuser brings the deadline nearer; only those that live count."""
        witness = self._roster.members.get(accuser)
        if witness is None or witness.state not in LIVE or not self._open[node].confirm(accuser):
            return False
        self._arm(node)
        return True

    def defer(self, until: float) -> None:
        """No verdict before: who stalled reads its mail first."""
        self._not_before = until

    def _hurry(self) -> None:
        """Too few are left to confirm anything: the earlier cases would wait in vain."""
        for node, case in self._open.items():
            if case.wanted:
                case.wanted = 0
                self._arm(node)

    def _arm(self, node: str) -> None:
        case = self._open[node]
        if case.calls < len(self._leads):
            when, action = case.deadline - self._leads[case.calls], self._remind
        else:
            when, action = max(case.deadline, case.called + self._config.probe_timeout), self._verdict
        self._timers.set(("suspicion", node), max(when, self._not_before), partial(action, node))

    def _remind(self, node: str, now: float) -> None:
        case = self._open[node]
        case.calls, case.called = case.calls + 1, now
        self._call(node, now)
        self._arm(node)

    def _verdict(self, node: str, now: float) -> None:
        case = self._open[node]
        if now < self._not_before:
            self._arm(node)
        else:
            self._bury(node, f"not refuted in {now - case.began:.1f} s; {len(case.accusers)} accusers", now)
