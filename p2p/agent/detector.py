"""SWIM's failure detector: one probe at a time, others asked where it stays silent, and Lifeguard's doubt in oneself.

Probes go round at random, but for two cases in which chance would take too long: each node also watches its successor in the
view, so that every death meets a probe soon, and an accusation has a few of those who hear it look for themselves, so that
confirmations come soon.
It accuses nobody itself: `suspect` is called with the node, the reason, since when it is silent, and the time. A suspect's time
runs from the first ping that it left unanswered.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from p2p.agent.probing import Probe, Relay
from p2p.agent.records import LIVE, MemberInfo
from p2p.agent.roster import Roster
from p2p.agent.suspicion import LocalHealth, RoundTrips
from p2p.agent.timers import Timers
from p2p.config import MembershipConfig
from p2p.net.messages import Message, Nack, News, Ping, PingRequest, Pong, Pulse

PROBE, ASK = "probe", "ask"  # timers
WATCH = 3
"""Every third probe goes to the successor. Where all were drawn at random, one death in a hundred would wait five intervals for
the first one."""
SECONDS = 2
"""So many times the confirmations that bring a verdict to its minimum are sought at once."""
LATELY = 15
"""Round trips kept of each node, beside the last: the least of so many hardly moves."""
RELAYS_MOST = 64
"""Probes for others that may be under way at once; a further one is answered with a nack."""


class Detector:
    """Probes the live members of the roster in turn, and answers the probes of others."""

    def __init__(
        self,
        roster: Roster,
        config: MembershipConfig,
        rng: random.Random,
        timers: Timers,
        send: Callable[[str, Message], None],
        news_for: Callable[[str], News],
        suspect: Callable[[str, str, float, float], None],
    ) -> None:
        self.health = LocalHealth(config)
        self.round_trips = RoundTrips()
        self._roster, self._config, self._rng, self._timers = roster, config, rng, timers
        self._send, self._news_for, self._suspect = send, news_for, suspect
        self._probe: Probe | None = None
        self._turn = rng.randrange(WATCH)
        self._relays: dict[int, Relay] = {}
        self._seq = rng.getrandbits(32)

    # --- own probes ------------------------------------------------------------------------------------------------

    @property
    def timeout(self) -> float:
        """Seconds until an answer is late."""
        return max(self._config.probe_timeout, 4 * self.round_trips.p99)

    @property
    def due(self) -> float:
        """When the next probe is to start; infinity once stopped."""
        return self._timers.when(PROBE)

    def start(self, when: float) -> None:
        """Probe for the first time at `when`."""
        self._timers.set(PROBE, when, self._next)

    def stop(self) -> None:
        """No more probes; those of others are still answered."""
        self.forgive()
        self._timers.cancel(PROBE)

    def forgive(self) -> None:
        """Never mind the probe under way."""
        self._probe = None
        self._timers.cancel(ASK)

    def _next(self, now: float) -> None:
        self._judge(now)
        period = max(self._config.probe_interval, 2 * self.timeout) * (self.health.score + 1)
        self._timers.set(PROBE, now + period, self._next)
        target = self._target(now)
        if target is None:
            return
        self._seq += 1
        self._probe = Probe(target, self._seq, now)
        if self._dial_only(target) and self._roster.me.record.dial_only:
            self._ask_others(now)
            return
        self._send(target, Ping(self._seq, target, self._roster.me.pulse, self._news_for(target)))
        self._timers.set(ASK, now + self.timeout, self._ask_others)

    def second(self, node: str) -> None:
        """Somebody else accuses `node`: perhaps look at it before its turn."""
        wanted = SECONDS * (self._config.suspicion_multiplier - 2)
        if self._rng.random() * len(self._roster.order) < wanted:
            self._roster.order.hasten(node)

    def _target(self, now: float) -> str | None:
        self._turn += 1
        watched = self._roster.successor if self._turn % WATCH == 0 else None
        if watched is not None and self._worth_a_probe(watched, now):
            return watched
        return self._roster.order.next(lambda node: self._worth_a_probe(node, now))

    def _worth_a_probe(self, node: str, now: float) -> bool:
        """Two dial-only nodes reach each other through a third."""
        return self._roster.reachable(node, now) or self._roster.me.record.dial_only

    def _ask_others(self, now: float) -> None:
        probe = self._probe
        if probe is None:
            return
        helpers = self._roster.order.sample(
            self._config.indirect_probes, lambda node: node != probe.target and not self._dial_only(node)
        )
        probe.helpers = frozenset(helpers)
        for helper in helpers:
            self._send(helper, PingRequest(probe.seq, probe.target, self._news_for(helper)))

    def _judge(self, now: float) -> None:
        """The probe under way had its time."""
        probe = self._probe
        self.forgive()
        info = self._roster.members.get(probe.target) if probe else None
        if probe is None or info is None or info.state not in LIVE:
            return
        if info.heard > probe.began:
            self.health.add(-1)
            return
        if info.record.dial_only and now - info.heard > self._config.reach:
            return  # two dial-only nodes: perhaps the helpers never met the other
        silent = len(probe.helpers) - len(probe.nacks)
        self.health.add(silent if probe.helpers else 1)
        reason = f"no answer, neither directly nor through {len(probe.helpers)} others"
        self._suspect(probe.target, reason, max(probe.began, now - self._config.probe_interval), now)

    def _dial_only(self, node: str) -> bool:
        return self._roster.members[node].record.dial_only

    # --- messages --------------------------------------------------------------------------------------------------

    def pinged(self, sender: str, message: Ping) -> None:
        """Answer, if it is for this node and not for one that had this address before."""
        self._note(sender, message.pulse)
        if message.target == self._roster.node:
            self._send(sender, Pong(message.seq, self._roster.me.pulse, self._news_for(sender)))

    def ponged(self, sender: str, message: Pong, now: float) -> None:
        """An answer: to the own probe, directly or through a helper, or to one made for somebody else."""
        relay = self._relays.get(message.seq)
        if relay is not None and sender == relay.target:
            self._end_relay(message.seq)
            self._note(sender, message.pulse)
            self._send(relay.asker, Pong(relay.seq, message.pulse, self._news_for(relay.asker)))
        elif (probe := self._probe) is not None and message.seq == probe.seq:
            self._answered(probe, sender, message.pulse, now)

    def asked(self, sender: str, message: PingRequest, now: float) -> None:
        """Probe for somebody else; say so where it can't be done."""
        if not self._can_relay(message.target, now):
            self._send(sender, Nack(message.seq))
            return
        self._seq += 1
        self._relays[self._seq] = Relay(sender, message.seq, message.target)
        self._timers.set(("relay", self._seq), now + 0.8 * self.timeout, partial(self._relay_silent, self._seq))
        self._send(message.target, Ping(self._seq, message.target, self._roster.me.pulse, self._news_for(message.target)))

    def _can_relay(self, target: str, now: float) -> bool:
        known = target in self._roster.members and target != self._roster.node
        return known and self._roster.reachable(target, now) and len(self._relays) < RELAYS_MOST

    def nacked(self, sender: str, message: Nack) -> None:
        """A helper is well, but reaches the target no better."""
        if self._probe is not None and message.seq == self._probe.seq and sender in self._probe.helpers:
            self._probe.nacks.add(sender)

    def _answered(self, probe: Probe, sender: str, pulse: Pulse, now: float) -> None:
        if sender == probe.target:
            self.round_trips.add(now - probe.began)
            info = self._roster.members[probe.target]
            info.round_trips = (*info.round_trips[-LATELY:], now - probe.began)
        elif sender not in probe.helpers:
            return
        self._roster.members[probe.target].heard = now
        self._note(probe.target, pulse)
        self.health.add(-1)
        self.forgive()

    def _relay_silent(self, seq: int, now: float) -> None:
        relay = self._end_relay(seq)
        self._send(relay.asker, Nack(relay.seq))

    def _end_relay(self, seq: int) -> Relay:
        self._timers.cancel(("relay", seq))
        return self._relays.pop(seq)

    def _note(self, node: str, pulse: Pulse) -> None:
        info: MemberInfo | None = self._roster.members.get(node)
        if info is not None:
            info.pulse = pulse
