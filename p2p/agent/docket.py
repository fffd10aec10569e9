"""The open suspicions: each ends in a refutation or at its deadline, which confirmations bring nearer."""

from __future__ import annotations

from collections.abc import Callable, KeysView
from functools import partial

from p2p.agent.records import LIVE
from p2p.agent.roster import Roster
from p2p.agent.suspicion import Suspicion
from p2p.agent.timers import Timers
from p2p.config import MembershipConfig


class Docket:
    """One suspicion per suspect; `expired` is called with the node, a reason and the time."""

    def __init__(
        self, roster: Roster, config: MembershipConfig, timers: Timers, expired: Callable[[str, str, float], None]
    ) -> None:
        self._roster, self._config, self._timers, self._expired = roster, config, timers, expired
        self._open: dict[str, Suspicion] = {}
        self._not_before = 0.0

    def __contains__(self, node: str) -> bool:
        return node in self._open

    @property
    def suspects(self) -> KeysView[str]:
        """Whose time is running."""
        return self._open.keys()

    def open(self, node: str, accuser: str, since: float) -> None:
        """The time of a suspect runs from `since`; an open case begins anew."""
        self._open[node] = Suspicion(self._config, self._roster.live, accuser, since)
        self._arm(node)

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

    def _arm(self, node: str) -> None:
        when = max(self._open[node].deadline, self._not_before)
        self._timers.set(("suspicion", node), when, partial(self._expire, node))

    def _expire(self, node: str, now: float) -> None:
        if now < self._not_before:
            self._arm(node)
            return
        case = self._open[node]
        self._expired(node, f"not refuted in {now - case.began:.1f} s; {len(case.accusers)} accusers", now)
