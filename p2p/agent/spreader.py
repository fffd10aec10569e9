"""How news gets about: on probes, by gossip while there is any, by push-pull against what gossip misses, and to the dead.

A partition heals because the dead go on to be told; a node that is wrongly held dead learns it, and refutes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

from p2p.agent.chart import Chart
from p2p.agent.dissemination import NOTHING, Dissemination, Item
from p2p.agent.records import HELD, State, batches, make_news
from p2p.agent.roster import Roster
from p2p.agent.suspicion import sync_period
from p2p.agent.timers import Timers
from p2p.config import MembershipConfig
from p2p.net.messages import Gossip, Message, News, Sync

GOSSIP, SYNC, RECONNECT, REAP = "gossip", "sync", "reconnect", "reap"  # timers


class Spreader:
    """Decides who hears what, when."""

    def __init__(
        self,
        roster: Roster,
        config: MembershipConfig,
        rng: random.Random,
        timers: Timers,
        send: Callable[[str, Message], None],
        chart: Chart,
    ) -> None:
        self._roster, self._config, self._rng, self._timers, self._send = roster, config, rng, timers, send
        self._chart = chart
        self._queue = Dissemination(config)
        self.second_hand = False
        """While true, what is taken in is old news to most, and told once; the own word never is."""

    def start(self, now: float) -> None:
        """Push-pull from now on, at a random phase."""
        period = sync_period(self._config, self._roster.live)
        self._timers.set(SYNC, now + (0.5 + self._rng.random()) * period, self._on_sync)

    def stop(self) -> None:
        """Only what is queued still goes out."""
        self._timers.cancel(SYNC)
        self._timers.cancel(RECONNECT)

    def spread(self, subject: str, item: Item, now: float) -> None:
        """This is news about `subject`, and replaces what was."""
        self._queue.push(subject, item, once=self.second_hand and subject != self._roster.node)
        if GOSSIP not in self._timers:
            self._timers.set(GOSSIP, now + self._config.gossip_interval, self._on_gossip)

    def news_for(self, node: str) -> News:
        """What rides on a message to `node`; what it is accused of comes first."""
        info = self._roster.members.get(node)
        accused: list[Item] = [info.accusation(node)] if info is not None and info.state in HELD else []
        items = self._queue.take(self._roster.live) + self._chart.riders()
        return make_news(accused + items) if accused or items else NOTHING

    def tell(self, node: str, now: float) -> None:
        """Let a suspect or dead node know, so that it can refute; at most once per probe interval."""
        info = self._roster.members.get(node)
        if info is not None and info.state in HELD and now - info.told >= self._config.probe_interval:
            info.told = now
            self._send(node, Gossip(News(accusations=(info.accusation(node),))))

    def mourn(self, now: float) -> None:
        """Somebody died or left: call the dead now and then, and forget them in the end."""
        if RECONNECT not in self._timers and not self._roster.me.has_left:
            self._timers.set(RECONNECT, now + self._rng.random() * self._config.reconnect_interval, self._on_reconnect)
        if REAP not in self._timers:
            self._timers.set(REAP, now + self._config.tombstone, self._on_reap)

    def sync_with(self, node: str, *, reply: bool) -> None:
        """All that is known, in as many messages as it takes; the last one asks for theirs."""
        chunks = list(self.everything())
        for number, news in enumerate(chunks, 1):
            self._send(node, Sync(news, reply and number == len(chunks)))

    def everything(self) -> Iterator[News]:
        """Of the dead only that they are: who doesn't know them need not learn of them."""
        return batches(chain(self._stands(), self._chart.everything()))

    def _stands(self) -> Iterator[Item]:
        for node, info in self._roster.members.items():
            if info.state is not State.DEAD:
                yield info.record
            if info.state in HELD:
                yield info.accusation(node)

    def _on_gossip(self, now: float) -> None:
        listeners = self._roster.order.sample(self._config.gossip_fanout, partial(self._roster.reachable, now=now))
        lately_dead = self._roster.lately_dead(now, self._config.gossip_to_dead)
        if lately_dead:
            listeners.append(self._rng.choice(lately_dead))
        for node in listeners:
            news = self.news_for(node)
            if news is not NOTHING:
                self._send(node, Gossip(news))
        if listeners and len(self._queue):
            self._timers.set(GOSSIP, now + self._config.gossip_interval, self._on_gossip)

    def _on_sync(self, now: float) -> None:
        for node in self._roster.order.sample(1, partial(self._roster.reachable, now=now)):
            self.sync_with(node, reply=True)
        period = sync_period(self._config, self._roster.live)
        self._timers.set(SYNC, now + period * (0.9 + 0.2 * self._rng.random()), self._on_sync)

    def _on_reconnect(self, now: float) -> None:
        """Perhaps one of the dead was only cut off."""
        dead = [node for node in self._roster.graves if self._roster.members[node].state is State.DEAD]
        if dead:
            self.sync_with(self._rng.choice(dead), reply=True)
            self._timers.set(RECONNECT, now + self._config.reconnect_interval, self._on_reconnect)

    def _on_reap(self, now: float) -> None:
        """Forget those who have been gone for long; look again when the next one's time has come."""
        while self._roster.graves:
            oldest = next(iter(self._roster.graves))
            due = self._roster.members[oldest].since + self._config.tombstone
            if due > now:
                self._timers.set(REAP, due, self._on_reap)
                return
            self._roster.forget(oldest)
