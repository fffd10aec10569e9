"""Leases: which chunks of a data set this node works on next, so that all are done, each once where nobody dies.

A machine: it takes events and the time, and says what to send. Chunks are counted through all epochs. A node claims
chunks a little ahead and says so; a chunk whose home it is (rendezvous hashing, weighted with speed) it may begin at
once, unless homes have just changed; another one when the claim has settled. Near the end it takes a chunk only if it
would be done with it first.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from p2p.agent.finished import WINDOW, Finished
from p2p.agent.herald import Herald
from p2p.agent.instructions import Send
from p2p.agent.shares import absorbed, differs, is_home, scores, slowness
from p2p.config import WorkConfig
from p2p.errors import WireError
from p2p.net.messages import Lease, Work

SMOOTHING = 0.05
"""Weight of the newest step in a node's pace."""
SPIKE = 4.0
"""A single step counts as so many times the usual one at most: a checkpoint or an evaluation in mid-epoch is no slowness."""
TERM_STEPS = 3.0
"""A lease's term, in steps of the node that holds it."""
LONGEST_TERM = 3600.0
FARTHEST = 1 << 62
"""No chunk is beyond."""
CARRIED = 32
"""Leases of others in one message, at most."""
TAKEN = 256
"""Chunks named in one lease, at most; with the above it bounds a message to 32 * 256 * 9 bytes and the bitmap."""
DONE = ""
"""The name, among the news, of the finished set; all other news is named by node."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Work on this chunk now."""

    chunk: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again at this time, or when something has changed."""

    until: float


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing is left that this node should take in this epoch."""


Answer = Begin | Wait | Over


@dataclass(slots=True)
class Heard:
    """What another node said last of its lease, and when."""

    lease: Lease
    since: float

    def void(self, now: float) -> bool:
        return now >= self.since + self.lease.term


class Leases:
    """One node's leases on one data set of `chunks` chunks of `size` samples an epoch.

    `version` is above all that this node ever used; `number` tells data sets of one script apart.
    """

    def __init__(
        self, node: str, number: int, chunks: int, size: int, config: WorkConfig, rng: random.Random, version: int, now: float
    ) -> None:
        self.node = node
        self.number = number
        self.chunks = chunks
        self.size = size
        self.config = config
        self.finished = Finished()
        self.epoch = -1
        self.plans = 0  # made because speeds had changed
        self.duplicates = 0  # chunks that another node had finished too
        self.synced = False  # whether a member has said what it knows
        self.refused = 0  # messages about another data set under this number
        self._herald = Herald(config, rng, now)
        self._rng = rng
        self._version = version
        self._heard: dict[str, Heard] = {}
        self._begun: dict[int, None] = {}  # in order
        self._claimed: dict[int, float] = {}  # chunk -> when it may be begun
        self._slowness = {node: 1.0}  # of all members, as planned with
        self._planned = -math.inf  # when homes changed last
        self._order: dict[int, list[int]] = {}  # epoch -> its chunks, in the order in which this node takes them
        self._homes: dict[int, set[int]] = {}  # epoch -> those whose home is here
        self._pace = 0.0  # seconds per sample
        self._steps = 0
        self._longest = 0.0  # recent step, in seconds
        self._stepped: float | None = None  # when the last step was, within this pass
        self._spoken = now
        self._active = now  # when the trainer last asked or reported
        self._resting = True

    # --- the swarm ----------------------------------------------------------------------------------------------------

    def seat(self, members: Iterable[str], now: float) -> list[Send]:
        """Who lives. The dead hold nothing."""
        members = {*members, self.node}
        self._heard = {node: heard for node, heard in self._heard.items() if node in members}
        self._slowness = dict.fromkeys(sorted(members), 1.0) | {n: s for n, s in self._slowness.items() if n in members}
        self._herald.seat(members - {self.node})
        self._order.clear()
        self._planned = now
        return self.tick(now)

    def handle(self, sender: str, message: Work, now: float) -> list[Send]:
        """A member's word. Raises WireError for what can't be."""
        if message.chunks != self.chunks:
            self.refused += 1
            return []
        theirs = _checked(message)
        if self.finished.merge(theirs):
            self._herald.tell(DONE)
            self._drop([chunk for chunk in self._claimed if chunk in self.finished], now)
        for lease in message.leases:
            self._hear(lease, now)
        self.synced = True
        sends = [Send(sender, self._word(self._heard, now))] if message.reply else []
        return sends + self.tick(now)

    def tick(self, now: float) -> list[Send]:
        """What is to be sent now; to be called at `wake`."""
        pieces, members = self._herald.round(now)
        sends = [Send(member, self._word(pieces, now)) for member in members]
        member = self._herald.refresh(now)
        if member is not None:
            self._plan(now)
            sends.append(Send(member, self._word(self._heard, now)))
        return sends

    @property
    def wake(self) -> float:
        return self._herald.wake

    def ask(self, now: float) -> list[Send]:
        """Ask some members for all that they know: a joiner, before it takes work."""
        members = sorted(self._slowness.keys() - {self.node})[: self.config.fanout]
        return [Send(member, self._word((), now, reply=True)) for member in members]

    # --- the trainer --------------------------------------------------------------------------------------------------

    def begin(self, epoch: int, now: float) -> None:
        """Chunks of this epoch may be taken, after what is left of earlier ones."""
        self._active = now
        self.epoch = epoch
        self._resting = False
        self._stepped = None
        self._speak(now)

    def take(self, now: float) -> Answer:
        """The next chunk. Each that is begun is reported to `progress` or `release` in the end."""
        self._active = now
        self._claim(now)
        ready = next((chunk for chunk, when in self._claimed.items() if when <= now), None)
        if ready is None:
            return Wait(min(self._claimed.values())) if self._claimed else Over()
        del self._claimed[ready]
        self._begun[ready] = None
        self._claim(now)
        self._speak(now)
        return Begin(ready)

    def progress(self, samples: int, chunks: Sequence[int], now: float) -> None:
        """A step was taken on so many samples, and with it these chunks are finished."""
        self._active = now
        for chunk in chunks:
            self._begun.pop(chunk, None)
            self.duplicates += not self.finished.add(chunk)
            self._herald.tell(DONE, urgent=True)
        self._measure(samples, now)
        if chunks or now >= self._spoken + self.config.refresh:
            self._speak(now)

    def release(self, chunks: Sequence[int], now: float) -> None:
        """These were begun and won't be finished: anybody may take them."""
        for chunk in chunks:
            self._begun.pop(chunk, None)
        self._speak(now)

    def rest(self, now: float) -> None:
        """No more work for this node until it begins again."""
        self._claimed.clear()
        self._resting = True
        self._speak(now)

    def left(self, now: float) -> bool:
        """Whether there is still something in this epoch that this node has, or should take as far as it knows."""
        self._claim(now)
        return bool(self._begun or self._claimed)

    def complete(self, epoch: int) -> bool:
        """Whether every chunk up to the end of this epoch is finished."""
        return self.finished.floor >= (epoch + 1) * self.chunks

    @property
    def current(self) -> int:
        """The swarm's epoch: the first that is not complete."""
        return self.finished.floor // self.chunks

    @property
    def share(self) -> float:
        """The part of an epoch that is about this node's, by speed."""
        return 1 / self._slowness[self.node] / sum(1 / slow for slow in self._slowness.values())

    def restore(self, finished: Finished, begun: Sequence[int], now: float) -> None:
        """What a checkpoint says. This node goes on with the chunks in `begun`; `take` doesn't name them again."""
        self.finished.merge(finished)
        self._begun.update(dict.fromkeys(chunk for chunk in begun if chunk not in self.finished))
        self._herald.tell(DONE)
        self._speak(now)

    # --- claims -------------------------------------------------------------------------------------------------------

    def _claim(self, now: float) -> None:
        """Claim ahead, as much as is worked off while a claim settles."""
        missing = self._ahead() - len(self._claimed)
        if missing <= 0:
            return
        held = self._held(now)
        end = (self.epoch + 1) * self.chunks
        left = end - self.finished.below(end) - sum(chunk < end for chunk in held)
        for chunk in islice(self._free(held), missing):
            if not self._is_mine(left, now):
                break
            since = self._planned if chunk in self._homes[chunk // self.chunks] else now
            self._claimed[chunk] = max(now, since + self._settling)
            left -= 1
            self._speak(now)

    def _ahead(self) -> int:
        if not self._pace:
            return 1
        return min(self.config.claims, max(1, math.ceil(self._settling / (self._pace * self.size))))

    @property
    def _settling(self) -> float:
        """Seconds until all have heard of a claim, and their objections have come."""
        return self.config.settle * self._herald.depth if len(self._slowness) > 1 else 0.0

    def _held(self, now: float) -> set[int]:
        """Unfinished chunks that somebody works on or has claimed, this node too."""
        held = {*self._begun, *self._claimed}
        for heard in self._heard.values():
            if not heard.void(now):
                held.update(heard.lease.taken)
        return {chunk for chunk in held if chunk not in self.finished}

    def _free(self, held: set[int]) -> Iterator[int]:
        """What may be claimed, the oldest epoch first, each in this node's order."""
        for epoch in range(self.current, self.epoch + 1):
            for chunk in self._ordered(epoch):
                if chunk not in held and chunk not in self.finished and chunk < self.finished.floor + WINDOW:
                    yield chunk

    def _ordered(self, epoch: int) -> list[int]:
        if epoch not in self._order:
            whole = np.arange(epoch * self.chunks, (epoch + 1) * self.chunks)
            chunks = np.array([chunk for chunk in whole.tolist() if chunk not in self.finished], dtype=np.int64)
            home = is_home(self.node, chunks, self._slowness)
            self._homes[epoch] = {*chunks[home].tolist()}
            self._order[epoch] = chunks[np.lexsort((-scores(self.node, chunks), ~home))].tolist()
        return self._order[epoch]

    def _is_mine(self, left: int, now: float) -> bool:
        """The greedy split: of `left` free chunks, is one for this node?"""
        at_work = [heard for heard in self._heard.values() if not heard.void(now)]
        queues = [sum(chunk not in self.finished for chunk in heard.lease.taken) for heard in at_work]
        slow = [self._slowness[heard.lease.node] for heard in at_work]
        finish = (len(self._begun) + len(self._claimed) + 1) * self._slowness[self.node]
        return absorbed(finish, queues, slow) < left

    # --- the others ---------------------------------------------------------------------------------------------------

    def _hear(self, lease: Lease, now: float) -> None:
        """News of a member; where both have claimed a chunk, the one that has begun it keeps it, else the higher score."""
        known = self._heard.get(lease.node)
        if lease.node == self.node or lease.node not in self._slowness or (known and known.lease.version >= lease.version):
            return
        self._heard[lease.node] = Heard(lease, now)
        self._herald.tell(lease.node)
        begun = lease.taken[: lease.begun]
        self._drop([c for c in lease.taken if c in self._claimed and (c in begun or self._yields(c, lease.node))], now)

    def _yields(self, chunk: int, rival: str) -> bool:
        at = np.array([chunk])
        return bool(scores(rival, at)[0] > scores(self.node, at)[0])

    def _drop(self, chunks: Sequence[int], now: float) -> None:
        for chunk in chunks:
            del self._claimed[chunk]
        if chunks:
            self._speak(now)

    def _plan(self, now: float) -> None:
        """Other speeds, if they differ enough, make other homes."""
        paces = {node: self._heard[node].lease.pace if node in self._heard else 0.0 for node in self._slowness}
        new = slowness(paces | {self.node: self._pace})
        if differs(self._slowness, new):
            self.plans += 1
            self._slowness = new
            self._order.clear()
            self._planned = now

    # --- the own word -------------------------------------------------------------------------------------------------

    def _measure(self, samples: int, now: float) -> None:
        """Pace (a mean at first, then smoothed) and the term that follows from the time of a step."""
        before, self._stepped = self._stepped, now
        if before is None or not samples:
            return
        self._steps += 1
        weight = max(SMOOTHING, 1 / self._steps)
        pace = (now - before) / samples
        self._pace += weight * (min(pace, SPIKE * (self._pace or pace)) - self._pace)
        self._longest = max(now - before, (1 - SMOOTHING) * self._longest)

    def _term(self, now: float) -> float:
        """What is left of it: it counts from the last sign of the trainer, whatever its agent has said since."""
        if self._resting:
            return 0.0
        term = max(self.config.term, TERM_STEPS * self._longest) if self._steps else self.config.first_term
        return max(0.0, min(LONGEST_TERM, term) - (now - self._active))

    def _speak(self, now: float) -> None:
        """The own lease has changed."""
        self._version += 1
        self._spoken = now
        self._herald.tell(self.node)

    def _word(self, names: Collection[str], now: float, reply: bool = False) -> Work:
        """All that is finished, the own lease, and those of the nodes that are named."""
        taken = (*self._begun, *self._claimed)[:TAKEN]
        own = Lease(self.node, self._version, self._pace, self._term(now), min(len(self._begun), TAKEN), taken)
        others = [self._heard[name].lease for name in names if name in self._heard]
        if len(others) > CARRIED:
            others = self._rng.sample(others, CARRIED)
        finished = self.finished
        return Work(self.number, self.chunks, finished.floor, finished.bitmap, (own, *others), reply)


def _checked(message: Work) -> Finished:
    """WireError for what can't be."""
    if not 0 <= message.floor <= FARTHEST or 8 * len(message.finished) > WINDOW:
        raise WireError("value", f"finished from {message.floor}, {len(message.finished)} bytes")
    for lease in message.leases:
        if lease.version < 0 or lease.pace < 0 or not 0 <= lease.term <= LONGEST_TERM:
            raise WireError("value", "a lease out of range")
        if not 0 <= lease.begun <= len(lease.taken) <= TAKEN or not all(0 <= chunk <= FARTHEST for chunk in lease.taken):
            raise WireError("value", "a lease on what is no chunk")
    return Finished(message.floor, message.finished)
