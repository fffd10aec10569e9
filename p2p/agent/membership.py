"""Who is in the swarm: SWIM with Lifeguard, as a machine.

Das, Gupta, Motivala: "SWIM" (2002), with Lifeguard's local health and shrinking suspicions, push-pull against what gossip
misses, and records that only their subject can sign. Messages, closed connections and the time go in, instructions come out;
the machine owns no socket, clock, thread or randomness. What decides how a node stands is in `records.py`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from p2p.agent.chart import Chart
from p2p.agent.detector import Detector
from p2p.agent.dissemination import retransmit_limit
from p2p.agent.docket import Docket
from p2p.agent.instructions import Instruction
from p2p.agent.outbox import Outbox
from p2p.agent.records import (
    DAY,
    HELD,
    HOUR,
    LIVE,
    MemberInfo,
    State,
    identify,
    objection,
    once_per_record,
    supersedes,
)
from p2p.agent.roster import Roster
from p2p.agent.spreader import Spreader
from p2p.agent.timers import Timers
from p2p.agent.view import View
from p2p.config import MembershipConfig
from p2p.net import keys
from p2p.net.messages import Accusation, Gossip, Message, Nack, News, Phase, Ping, PingRequest, Pong, Pulse, Record, Sync


class Membership:
    """One node's machine; calls return instructions, to be performed in their order."""

    def __init__(
        self,
        record: Record,
        sign: Callable[[Record], Record],
        verify: Callable[[Record], bool],
        config: MembershipConfig,
        rng: random.Random,
        now: float,
    ) -> None:
        """`record` is this node's own, signed; its incarnation is `records.boot_incarnation`'s. `now`: monotonic seconds."""
        self.node = identify(record.key)
        self._outbox = Outbox()
        self.refused = self._outbox.refused
        self._config = config
        self._sign, self._verify = sign, once_per_record(verify)
        self._roster = Roster(self.node, record, config, rng, now)
        self._me = self._roster.me
        self._epoch = now - record.incarnation / 1000  # when it was incarnation 0, taken as milliseconds
        self._timers = Timers()
        self.chart = Chart(self._roster, config, self._timers)
        self._spreader = Spreader(self._roster, config, rng, self._timers, self._outbox.send, self.chart)
        self._detector = Detector(
            self._roster, config, rng, self._timers, self._outbox.send, self._spreader.news_for, self._suspect
        )
        self._docket = Docket(self._roster, config, self._timers, self._spreader.tell, self._bury)
        self._accused_at = -1  # the highest incarnation of ours that the news in hand calls suspect or dead
        self._buried = record.incarnation - 1  # the highest one at which somebody called this node dead
        self._outbid_last = -math.inf
        self._detector.start(now + rng.random() * config.probe_interval)
        self._spreader.start(now)

    # --- what is known -----------------------------------------------------------------------------------------------

    @property
    def record(self) -> Record:
        """This node's own, as last announced; keep its incarnation for the next start."""
        return self._me.record

    @property
    def members(self) -> Mapping[str, MemberInfo]:
        """All known nodes, the dead and this one included; live, read only."""
        return MappingProxyType(self._roster.members)

    @property
    def present(self) -> list[str]:
        """Ids of those in the view that are not suspected, in its order; this node is, whatever others say."""
        suspects = {node for node, info in list(self._roster.members.items()) if info.state is State.SUSPECT}
        return [member.id for member in self.view.members if member.id == self._roster.node or member.id not in suspects]

    @property
    def view(self) -> View:
        """Who counts for topologies; another object whenever it changes."""
        return self._roster.view

    @property
    def pulse(self) -> Pulse:
        """This node's own, sent with probes."""
        return self._me.pulse

    @pulse.setter
    def pulse(self, pulse: Pulse) -> None:
        self._me.pulse = pulse

    @property
    def health(self) -> int:
        """Local health: 0 is well, `health_max` - 1 the worst."""
        return self._detector.health.score

    @property
    def wake(self) -> float:
        """The next moment at which `tick` has something to do."""
        return self._timers.next

    def news(self) -> News:
        """Everything known, or as much of it as one message takes; the rest comes by push-pull."""
        return next(self._spreader.everything())

    def story(self, node: str) -> list[str]:
        """What happened to one node lately, and why."""
        return self._outbox.story(node)

    def validate_state(self) -> None:
        """For tests: AssertionError where what is derived is out of step."""
        self._roster.validate_state()
        suspects = {node for node, info in self._roster.members.items() if info.state is State.SUSPECT}
        assert suspects == self._docket.suspects, "a suspicion runs exactly while its subject is suspect"
        assert all(("suspicion", node) in self._timers for node in suspects), "a suspicion without an end"
        assert self._me.has_left or self._me.state in (State.JOINING, State.ALIVE), "a node accuses itself"
        assert not self._outbox, "instructions left behind"

    # --- events -----------------------------------------------------------------------------------------------------

    def handle(self, sender: str, message: Message, now: float) -> list[Instruction]:
        """A membership message came, in a frame that `sender` (a node id) is the author of."""
        if sender == self.node:
            return []
        info = self._roster.members.get(sender)
        if info is not None:
            info.heard = now
        if isinstance(message, Ping | Pong | PingRequest | Gossip | Sync):
            self._merge(message.news, sender, now, synced=isinstance(message, Sync))
        match message:
            case Ping():
                self._detector.pinged(sender, message)
            case Pong():
                self._detector.ponged(sender, message, now)
            case PingRequest():
                self._detector.asked(sender, message, now)
            case Nack():
                self._detector.nacked(sender, message)
            case Sync(reply=True):
                self._spreader.sync_with(sender, reply=False)
        return self._outbox.flush()

    def meet(self, news: News, now: float) -> list[Instruction]:
        """News from outside gossip: a welcome's, or a hello's record.

        Who was alone pulls from several at once; who knew nobody at all is told what most others know.
        """
        alone = self._roster.live == 1
        self._spreader.second_hand = len(self._roster.members) == 1
        self._merge(news, "", now)
        self._spreader.second_hand = False
        if alone:
            for node in self._roster.order.sample(self._config.sync_peers, partial(self._roster.reachable, now=now)):
                self._spreader.sync_with(node, reply=True)
        return self._outbox.flush()

    def know(self, records: Iterable[Record], now: float) -> None:
        """Members that everybody knows beforehand: nobody is told of them, nobody asked. For swarms that are set up whole."""
        contract, horizon = self.record.contract, self._horizon(now)
        sound = [(identify(r.key), r) for r in records if not objection(r, contract, horizon, self._verify)]
        new = [(node, record) for node, record in sound if node not in self._roster.members]
        self._roster.know(new[: self._config.members_max - len(self._roster.members)], now)
        self._spreader.start(now)  # at a large swarm's period

    def tick(self, now: float) -> list[Instruction]:
        """Do what is due by `now`; in time, or the node finds that it stalled."""
        late = now - self._detector.due
        if late > self._detector.timeout:
            self._stalled(late, now)
        while action := self._timers.pop(now):
            action(now)
        return self._outbox.flush()

    def heard(self, node: str, incarnation: int, now: float, pulse: Pulse | None = None) -> None:
        """A frame of any kind came from `node`; whoever speaks and is held dead is told so, at the next tick."""
        info = self._roster.members.get(node)
        if info is not None and incarnation >= info.record.incarnation:
            info.heard, info.pulse = now, pulse or info.pulse
            if info.state in HELD:
                self._timers.set(("tell", node), now, partial(self._spreader.tell, node))

    def closed(self, node: str, reason: str, now: float) -> list[Instruction]:
        """A connection to `node` was lost: a hint, never a verdict."""
        info = self._roster.members.get(node)
        if info is not None and node != self.node and info.state in LIVE:
            self._suspect(node, f"connection lost: {reason}", now, now)
        return self._outbox.flush()

    def announce(
        self, *, now: float, phase: Phase | None = None, control: str | None = None, data: str | None = None
    ) -> list[Instruction]:
        """Say something new about this node, under a higher incarnation."""
        given = {"phase": phase, "control": control, "data": data}
        self._publish(now, "announced", **{name: value for name, value in given.items() if value is not None})
        return self._outbox.flush()

    def leave(self, now: float) -> list[Instruction]:
        """Say goodbye to several at once; go on ticking for about a second so that the rest hear it."""
        self._publish(now, "leaving", phase=Phase.LEFT)
        self._detector.stop()
        self._spreader.stop()
        count = retransmit_limit(self._config, self._roster.live)
        for node in self._roster.order.sample(count, partial(self._roster.reachable, now=now)):
            self._outbox.send(node, Gossip(News((self.record,))))
        return self._outbox.flush()

    # --- merging ----------------------------------------------------------------------------------------------------

    def _merge(self, news: News, source: str, now: float, *, synced: bool = False) -> None:
        """Take news in. What push-pull calls dead is suspect at most: the source may be long out of date."""
        if not (news.records or news.accusations or news.figures):
            return
        self._accused_at = -1
        for accusation in news.accusations:
            if not (len(accusation.node) == len(accusation.accuser) == len(self.node)):
                self._outbox.refuse(source, "malformed")
                return
            self._take_accusation(accusation, source, now, synced)
        for record in news.records:
            if not self._take_record(record, source, now, synced):
                break
        for figures in news.figures:
            if reason := self.chart.take(figures, now, spread=bool(source) and not synced):
                self._outbox.refuse(source, reason)
                break
        if self._accused_at >= 0 and not self._me.has_left:
            self._answer_accusers(source, now)

    def _take_record(self, record: Record, source: str, now: float, synced: bool) -> bool:
        """Whether the rest of the message deserves to be read."""
        if len(record.key) != keys.KEY_BYTES:
            self._outbox.refuse(source, "malformed")
            return False
        node = identify(record.key)
        info = self._roster.members.get(node)
        if info is not None and not supersedes(record, info.record):
            if info.state in HELD:
                self._spreader.tell(node, now)
            return True
        reason = objection(record, self.record.contract, self._horizon(now), self._verify)
        if reason:
            self._outbox.refuse(source, reason)
            return reason not in ("malformed", "signature")
        if node == self.node:
            self._outbid(record, now)
        elif info is not None:
            self._replace(node, info, record, now)
        elif record.phase == Phase.LEFT:
            self._hint(Accusation(node, record.incarnation, node, dead=True), now, synced)
        else:
            self._enter(node, record, source, now)
        return True

    def _enter(self, node: str, record: Record, source: str, now: float) -> None:
        info = self._roster.enter(node, record, now)
        if info is None:
            self._outbox.refuse(source, "full")
            return
        self._spreader.spread(node, info.accusation(node) if info.state in HELD else record, now)
        self._follow(node, info, now)
        self._spreader.tell(node, now)
        if info.state in LIVE:
            self._outbox.changed(now, node, None, info.state, f"introduced by {source[:10] or 'itself'}")

    def _replace(self, node: str, info: MemberInfo, record: Record, now: float) -> None:
        info.record = record
        self._docket.close(node)
        self._spreader.spread(node, record, now)
        self._settle(node, info, f"its word at incarnation {record.incarnation}", now)

    def _take_accusation(self, accusation: Accusation, source: str, now: float, synced: bool) -> None:
        if accusation.node == self.node:
            self._take_personally(accusation, source, now)
            return
        info = self._roster.members.get(accusation.node)
        if info is None:
            self._hint(accusation, now, synced)
        elif accusation.incarnation > info.record.incarnation and accusation.incarnation > self._horizon(now) - HOUR:
            self._outbox.refuse(source, "incarnation")
        elif accusation.incarnation >= info.record.incarnation:
            known = replace(accusation, dead=False) if synced and accusation.dead else accusation
            self._accuse(info, known, f"{'dead' if known.dead else 'suspect'}, says {known.accuser[:10]}", now)

    def _hint(self, accusation: Accusation, now: float, synced: bool) -> None:
        """Nobody introduced this node yet; keep what is said of it, and pass it on once."""
        if accusation.incarnation <= self._horizon(now) and self._roster.hints.add(accusation, now) and not synced:
            self._spreader.spread(accusation.node, accusation, now)

    def _accuse(self, info: MemberInfo, accusation: Accusation, reason: str, now: float) -> None:
        node, before = accusation.node, info.state
        rose = info.accuse(accusation)
        self._settle(node, info, reason, now)
        if before is State.SUSPECT and info.state is State.SUSPECT:
            fresh = self._docket.confirm(node, accusation.accuser)
        else:
            fresh = rose and (accusation.dead or info.state is not before)
        if fresh:
            self._spreader.spread(node, accusation, now)

    # --- suspicion --------------------------------------------------------------------------------------------------

    def _suspect(self, node: str, reason: str, since: float, now: float) -> None:
        """Accuse on this node's own account, silent `since` then, and tell the accused at once."""
        if self._me.has_left or not self._detector.health.may_accuse(now):
            return
        fresh = node not in self._docket
        self._charge(node, reason, now, dead=False)
        if fresh and node in self._docket:
            self._docket.open(node, self.node, since)
        self._spreader.tell(node, now)

    def _bury(self, node: str, reason: str, now: float) -> None:
        self._charge(node, reason, now, dead=True)

    def _charge(self, node: str, reason: str, now: float, *, dead: bool) -> None:
        """In this node's name, at the highest incarnation that it knows of."""
        info = self._roster.members[node]
        self._accuse(info, Accusation(node, max(info.record.incarnation, info.suspected), self.node, dead), reason, now)

    def _follow(self, node: str, info: MemberInfo, now: float) -> None:
        """A suspicion runs exactly while its subject is suspect; the dead are reaped, and now and then called."""
        if info.state is State.SUSPECT and node not in self._docket:
            self._docket.open(node, info.accuser, now)
            if info.accuser != self.node:
                self._detector.second(node)
        elif info.state is not State.SUSPECT:
            self._docket.close(node)
        if info.state not in LIVE:
            self._spreader.mourn(now)

    def _stalled(self, late: float, now: float) -> None:
        """This node stood still: nothing that ran out meanwhile counts against others."""
        if late > self._config.suspicion_floor:
            self._outbox.returned(f"stood still for {late:.0f} s")
        self._timers.shift(late)
        self._detector.forgive()
        self._detector.health.add(1)
        self._docket.defer(now + self._detector.timeout)

    # --- this node's own word ---------------------------------------------------------------------------------------

    def _take_personally(self, accusation: Accusation, source: str, now: float) -> None:
        if accusation.incarnation >= self._horizon(now):
            self._outbox.refuse(source, "incarnation")
            return
        if accusation.dead and accusation.incarnation > self._buried and not self._me.has_left:
            self._buried = accusation.incarnation
            self._outbox.returned(f"held dead by {accusation.accuser[:10]}")
        if accusation.incarnation >= self.record.incarnation:
            self._accused_at = max(self._accused_at, accusation.incarnation)
        else:
            self._accused_at = max(self._accused_at, 0)  # refuted already, which they missed

    def _answer_accusers(self, source: str, now: float) -> None:
        """Refute what the news said of this node, once for all of it; and directly to the source, which may be cut off."""
        if self._accused_at >= self.record.incarnation:
            self._detector.health.add(1)
            self._publish(now, "refuted", incarnation=self._accused_at + 1)
        if source:
            self._outbox.send(source, Gossip(News((self.record,))))

    def _outbid(self, record: Record, now: float) -> None:
        """Our key said this, but not here: an earlier life whose incarnation was lost, or a second process with our key."""
        if now - self._outbid_last < self._config.probe_interval:
            return
        self._outbid_last = now
        self._outbox.refuse(self.node, "conflict")
        self._publish(now, "outbid a word under the same key", incarnation=record.incarnation + 1)

    def _publish(self, now: float, reason: str, **changes: Any) -> None:
        following = {"incarnation": self.record.incarnation + 1} | changes
        self._me.record = self._sign(replace(self.record, **following))
        self._spreader.spread(self.node, self.record, now)
        said = f"{reason}, incarnation {self.record.incarnation}"
        self._outbox.note(now, self.node, self._me.state, self._me.judge(), said)
        self._settle(self.node, self._me, reason, now)

    def _horizon(self, now: float) -> float:
        """The highest incarnation that isn't absurd: a day ahead of the clock that this node started with."""
        return (now - self._epoch) * 1000 + DAY

    def _settle(self, node: str, info: MemberInfo, reason: str, now: float) -> None:
        before = self._roster.settle(node, info, now)
        self._follow(node, info, now)
        if before is not info.state:
            self._outbox.changed(now, node, before, info.state, reason)
