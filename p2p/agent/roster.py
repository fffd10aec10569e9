"""Who is known: the members with everything that is derived from how they stand, kept in step with it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from p2p.agent.probing import ProbeOrder
from p2p.agent.records import LIVE, MemberInfo, State
from p2p.agent.view import View, member_of
from p2p.config import MembershipConfig
from p2p.net.messages import Accusation, Record


@dataclass(slots=True)
class Hint:
    """What was said about a node that nobody introduced yet."""

    until: float
    suspected: int = -1
    buried: int = -1
    accuser: str = ""


class Hints:
    """Accusations about unknown nodes, remembered for a while; the oldest give way."""

    MOST = 1024

    def __init__(self, lifetime: float) -> None:
        self._lifetime = lifetime
        self._hints: dict[str, Hint] = {}

    def add(self, accusation: Accusation, now: float) -> bool:
        """Whether this is news."""
        self._expire(now)
        hint = self._hints.setdefault(accusation.node, Hint(now + self._lifetime))
        known = hint.buried if accusation.dead else max(hint.suspected, hint.buried)
        if accusation.incarnation <= known:
            return False
        if accusation.dead:
            hint.buried = accusation.incarnation
        else:
            hint.suspected = accusation.incarnation
        hint.accuser = accusation.accuser
        return True

    def pop(self, node: str, now: float) -> Hint | None:
        """What was said about a node that is introduced now."""
        self._expire(now)
        return self._hints.pop(node, None)

    def _expire(self, now: float) -> None:
        while self._hints:
            oldest = next(iter(self._hints))
            if len(self._hints) < self.MOST and self._hints[oldest].until > now:
                return
            del self._hints[oldest]


class Roster:
    """All known nodes, this one included; probe order, graves and view follow their states."""

    LATELY = 32

    def __init__(self, node: str, record: Record, config: MembershipConfig, rng: random.Random, now: float) -> None:
        self.node = node
        self.members: dict[str, MemberInfo] = {}
        self.order = ProbeOrder(rng)
        self.graves: dict[str, None] = {}  # dead and left, the longest gone first
        self.hints = Hints(config.hint)
        self.view = View()
        self._config = config
        self.me = MemberInfo(record, now)
        self.members[node] = self.me
        self.settle(node, self.me, now)

    @property
    def live(self) -> int:
        """How many live, this node included."""
        return len(self.order) + 1

    @property
    def successor(self) -> str | None:
        """The one that follows this node in the view, and the first one after the last; None where there is no other."""
        after = self.view.after(self.node)
        return after.id if after is not None and after.id != self.node else None

    def enter(self, node: str, record: Record, now: float) -> MemberInfo | None:
        """A node's first record; what was said about it before counts. None where there is no room."""
        if len(self.members) >= self._config.members_max:
            if not self.graves:
                return None
            self.forget(next(iter(self.graves)))
        info = MemberInfo(record, now)
        hint = self.hints.pop(node, now)
        if hint:
            info.suspected, info.buried, info.accuser = hint.suspected, hint.buried, hint.accuser
        self.members[node] = info
        info.state = info.judge()
        self._file(node, info, None)
        return info

    def know(self, records: Iterable[tuple[str, Record]], now: float) -> None:
        """Many new nodes at once, of whom nothing but their own word is known."""
        shown = list(self.view.members)
        for node, record in records:
            info = self.members[node] = MemberInfo(record, now)
            info.state = info.judge()
            self._rise(node)
            if info.in_view:
                shown.append(member_of(node, record.site, record.dial_only))
        self.view = View(shown)

    def settle(self, node: str, info: MemberInfo, now: float) -> State:
        """Judge again; returns the state before."""
        before, info.state = info.state, info.judge()
        if before is not info.state:
            info.since = now
        self._file(node, info, before)
        return before

    def forget(self, node: str) -> None:
        """A grave, and all that is known of who lies in it."""
        del self.graves[node]
        del self.members[node]

    def lately_dead(self, now: float, within: float) -> list[str]:
        """Those that died (and did not leave) within so many seconds, at most the last `LATELY` of them."""
        last = islice(reversed(self.graves), self.LATELY)
        return [n for n in last if (i := self.members[n]).state is State.DEAD and now - i.since <= within]

    def reachable(self, node: str, now: float) -> bool:
        """Whether there should be a way to `node`: a dial-only one must have opened it, not long ago."""
        info = self.members[node]
        if not info.record.dial_only:
            return True
        return not self.me.record.dial_only and now - info.heard <= self._config.reach

    def validate_state(self) -> None:
        """For tests: AssertionError where what is derived is out of step."""
        states = {node: info.judge() for node, info in self.members.items()}
        assert states == {node: info.state for node, info in self.members.items()}, "a state that the maxima don't add up to"
        others = {node for node, state in states.items() if state in LIVE} - {self.node}
        assert sorted(self.order) == sorted(others), "the probe order holds exactly the live others"
        assert self.graves.keys() == self.members.keys() - others - {self.node}, "the graves hold exactly the gone"
        shown = [member_of(n, i.record.site, i.record.dial_only) for n, i in self.members.items() if i.in_view]
        fresh = View(shown)
        assert (self.view, self.view.digest) == (fresh, fresh.digest), "the view holds exactly who counts"

    def _file(self, node: str, info: MemberInfo, before: State | None) -> None:
        lives, lived = info.state in LIVE, before in LIVE
        if node != self.node and lives != lived:
            self._rise(node) if lives else self._fall(node)
        elif node != self.node and before is None:
            self.graves[node] = None
        if info.in_view:
            self.view = self.view.with_(member_of(node, info.record.site, info.record.dial_only))
        else:
            self.view = self.view.without(node)

    def _rise(self, node: str) -> None:
        self.graves.pop(node, None)
        self.order.add(node)

    def _fall(self, node: str) -> None:
        self.graves[node] = None
        self.order.discard(node)
