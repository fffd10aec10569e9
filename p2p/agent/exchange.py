"""The swap machine: which blocks are asked of whom, which requests are answered, what is overdue. No I/O, no clock, no memory.

A swap of a block: the initiator sends its copy `y`, the responder adds an encoded change and answers it, the initiator
subtracts it; the swarm's mean does not move. The rules (each is there because training broke without it):

* each block counts its own rounds, so that no block always meets the same partner;
* a block is due one neighbourhood step time after its last own swap, and asks one partner, by weighted round robin;
* while an own swap of a block is open, one other swap of it is answered and further ones are declined: mixing stays convex;
* an open swap that is overdue holds nothing, and its late answer is still applied;
* exchange ids only grow, so that a repeated request is answered again and never mixed again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

from p2p.agent.agenda import Agenda
from p2p.agent.answers import Answers
from p2p.agent.bundles import BLOCKS
from p2p.agent.links import Link
from p2p.agent.round_robin import PEEK, Block, Row
from p2p.agent.stream import Stream
from p2p.agent.swap import Limits, Open, Opened, Repeat, Tally, Verdict
from p2p.config import ExchangeConfig

FULL = 0.01  # seconds before a connection without room is tried again
RECEIPTS = 1024  # that one message carries
BESIDE = 1 / 8  # of a joiner's blocks that came, so many bytes are swapped while the others come: the download goes first
EASE = (1 / 8, 1 / 2)  # a joiner's weight limit, at first and in the end


class Swaps:
    """The machine. `row(round)` gives whom to ask; ids start at `first_id` and must exceed those of an earlier incarnation."""

    def __init__(
        self, blocks: Sequence[tuple[int, int]], config: ExchangeConfig, row: Callable[[int], Row], first_id: int
    ) -> None:
        self.config = config
        self.row = row
        self.blocks = [Block(run, nbytes) for run, nbytes in blocks]
        self.size: Callable[[str, int], int] = lambda partner, i: self.blocks[i].nbytes  # of a block on a link
        self.free: Callable[[str, int], bool] = lambda partner, i: True  # whether a block may go to a partner now
        self.limits: Limits | None = None  # the user's
        self.agenda = Agenda(self.blocks)
        self.stream = Stream(self.blocks, first_id >> 20)
        self.links: dict[str, Link] = {}
        self.tally = Tally()
        self.pace = 0.0  # neighbourhood step time, seconds; 0: nothing is due yet
        self.period = 1  # steps between two own swaps of a block
        self.silent = False  # nothing new is asked for, while others are answered
        self.eager = False  # no local updates any more: as fast as swaps go
        self.most = 0  # own swaps that one block has opened
        self.ramp = 0  # rounds over which a joiner's weight limit rises; 0 for none
        self.closing = False
        self._budget = math.inf  # bytes that may be swapped while others are on their way
        self._next = first_id
        self._open: dict[int, Open] = {}  # in order of opening
        self._times: deque[float] = deque(maxlen=64)
        self._swap_time = 0.0
        self._answers = Answers(config.credit_max + config.message_bytes)  # one more is on its way when a receipt comes
        self._alone = False
        self._receipts: dict[str, list[int]] = {}
        self._full: set[str] = set()  # partners whose connection had no room
        self._shut: set[str] = set()  # partners to whom the limits let no more leave
        self._latest = 0.0  # tick
        self._loose = False  # blocks or credit came free since the last tick: what waits may have its turn

    # --- the view --------------------------------------------------------------------------------------------------

    def partners(self, live: Mapping[str, object], joining: Iterable[str] = ()) -> list[object]:
        """The view changed: forget who is not in it; swaps open with them stay unanswered, which is counted.

        Joiners are asked nothing, but answered. Returns the answers that nobody will ask for again.
        """
        for exchange in [e for e, o in self._open.items() if o.opened.partner not in live]:
            self.tally.moved += self._close(exchange).opened.count
        for gone in [p for p in {*self.links, *self._receipts} if p not in live]:
            self.links.pop(gone, None)
            self._receipts.pop(gone, None)
        for block in self.blocks:
            block.debts = {p: d for p, d in block.debts.items() if p in live}
        self._alone = not any(self.row(round) for round in range(PEEK))
        self.agenda.wake()
        self.stream.partners(live)
        return self._answers.partners({*live, *joining})

    def await_state(self, ramp: int) -> None:
        """The blocks are a joiner's, and not there yet; each one's weight limit will rise over so many rounds of its own."""
        self.ramp, self._budget = ramp, 0.0
        self.agenda.await_state()

    def arrived(self, blocks: Iterable[int] | None = None, due: float = 0.0) -> None:
        """These blocks are there (None: all), and take part from now on; to be swapped at `due` at the earliest."""
        came = self.agenda.arrived(blocks, due)
        self._budget = self._budget + BESIDE * sum(self.blocks[i].nbytes for i in came) if self.agenda.absent else math.inf

    def link(self, partner: str) -> Link:
        link = self.links.get(partner)
        if link is None:
            ceiling = self.limits.rate(partner) if self.limits is not None else math.inf
            link = self.links[partner] = Link(self.config, ceiling)
        return link

    # --- own swaps -------------------------------------------------------------------------------------------------

    @property
    def limit(self) -> int:
        """Own swaps of one block that may be open: as many as steps pass during a swap."""
        if not self.running or self.eager:
            return 1
        return min(max(1, math.ceil(self._swap_time / self.interval - 0.05)), self.config.open_max)

    @property
    def interval(self) -> float:
        """Seconds between two own swaps of a block."""
        return max(self._swap_time, 0.001) if self.eager else self.pace * self.period

    @property
    def running(self) -> bool:
        """Whether blocks become due: nobody's pace is known before the first steps."""
        return not self.closing and (self.eager or (self.pace > 0 and not self.silent))

    def tick(self, now: float) -> list[Opened | Repeat]:
        """What to send now. A request that can't be sent is given back by `unsent`."""
        self._release_overdue(now)
        self._loose, self._latest = False, now
        self._shut.clear()
        self._full = {p for p in self._full if p in self.links and self.links[p].retry(now)}
        repeats = self._repeats(now)
        if not self.running:
            return list(repeats)
        self.agenda.space(now, self.interval)
        return [*repeats, *self._open_owed(now), *self._open_due(now)]

    @property
    def wake(self) -> float:
        """When tick has something to do next, if no event comes before."""
        waits = self.running and bool(self.agenda.waiting or self.stream.behind)
        if waits and self._loose:
            return 0.0
        wake = min([entry.again for entry in self._open.values()]) if self._open else math.inf
        if not self.running:
            return wake
        if waits and self.limits is not None and self._shut:
            wake = min(wake, *[self.limits.opens(partner) for partner in self._shut])
        if self.agenda.next is not None:
            wake = min(wake, self.agenda.next)
        holding = next((entry for entry in self._open.values() if entry.holds), None)
        if holding is not None:
            wake = min(wake, holding.opened.at + self._overdue_after)
        return min([wake, *(self.links[p].full_until for p in self._full if p in self.links)]) if self._full else wake

    def unsent(self, exchange: int, now: float) -> None:
        """The transport had no room, or there is no route: the blocks are due again after the next receipt or tick."""
        opened = self.withdrawn(exchange)
        self.link(opened.partner).full_until = now + FULL
        self._full.add(opened.partner)
        blocks = range(opened.first, opened.first + opened.count)
        for i in blocks:
            self.blocks[i].pay(opened.partner, -1)
        self.agenda.hasten(blocks, now)

    def withdrawn(self, exchange: int) -> Opened:
        """It could not be staged, so nothing was sent: the blocks are due again in their time."""
        opened = self._close(exchange).opened
        for block in self.blocks[opened.first : opened.first + opened.count]:
            block.swaps -= 1
        self.most = max(block.swaps for block in self.blocks)
        return opened

    def stepped(self, step: int, now: float) -> None:
        """The trainer and the agent have met. Where blocks have turns, those whose it is are due, fresh as they are."""
        rates = [link.bandwidth for link in self.links.values() if link.rates]
        if self.agenda.spread and self.running and rates:
            self.agenda.turn(step, self.period, median(rates) * self.pace, now, self.interval)

    def asking(self, partner: str, exchange: int) -> Opened | None:
        """The own swap that is open under this id with this partner; None where nobody waits for an answer."""
        entry = self._open.get(exchange)
        return entry.opened if entry is not None and entry.opened.partner == partner else None

    def told_bounds(self, exchange: int, bounds: tuple[float, ...]) -> None:
        """Beyond these, per block, its answer counts less."""
        self._open[exchange].bounds = bounds

    def bounds(self, exchange: int) -> tuple[float, ...]:
        """What the partner was told with this open exchange."""
        return self._open[exchange].bounds

    def answered(self, exchange: int, now: float, mixed: bool) -> None:
        """The answer that was awaited came, and is what it should be."""
        opened = self._close(exchange, now).opened
        self._times.append(now - opened.at)
        self._swap_time = median(self._times)
        if mixed:
            self._receipts.setdefault(opened.partner, []).append(exchange)
            self.tally.swapped += opened.count
        else:
            self.tally.declined += opened.count

    def receipts(self, partner: str) -> tuple[int, ...]:
        """Exchanges whose answers came and that the partner has not been `told` of, as many as go into one message."""
        return tuple(self._receipts.get(partner, ())[:RECEIPTS])

    def told(self, partner: str) -> None:
        """These receipts left with a message."""
        rest = self._receipts.pop(partner, [])[RECEIPTS:]
        if rest:
            self._receipts[partner] = rest

    def unreceipted(self) -> list[str]:
        """Partners with receipts to be told."""
        return list(self._receipts)

    def drained(self) -> bool:
        return not self._open

    # --- others' swaps ---------------------------------------------------------------------------------------------

    def asked(self, partner: str, exchange: int, first: int, count: int, weight: float) -> Verdict:
        """A request came (with blocks; `count` 0 for a repeated one, by the header alone)."""
        kept = self._answers.find(partner, exchange)
        if kept is not None:
            return Verdict(0, 0.0, kept)
        if not self._answers.first(partner, exchange) or self.closing:
            return Verdict(0, 0.0)
        accepted = 0
        for bit in range(count):
            block = self.blocks[first + bit]
            if first + bit not in self.agenda.absent and not (block.held and block.answered):
                block.answered = block.held > 0
                accepted |= 1 << bit
        passing = 1 + max((b.held for b in self.blocks[first : first + count]), default=0)
        self.stream.met(partner, first, accepted, self._latest)
        return Verdict(accepted, min(weight, self._weight(first, count, passing)) if accepted else 0.0)

    def keep(self, partner: str, exchange: int, nbytes: int, answer: object) -> list[object]:
        """Keep an answer until its receipt; returns older ones that had to go because they exceed the partner's credit."""
        dropped = self._answers.keep(partner, exchange, nbytes, answer)
        self.tally.forgotten += len(dropped)
        return dropped

    def settled(self, partner: str, exchanges: Sequence[int]) -> list[object]:
        """The partner has these answers; returns them, so that their memory is freed."""
        return self._answers.settled(partner, exchanges)

    # --- inside ----------------------------------------------------------------------------------------------------

    @property
    def _overdue_after(self) -> float:
        return max(self.pace, 2 * self._swap_time)

    def _weight(self, first: int, count: int, passing: int) -> float:
        """The own limit: 1 / (k + 1) for one of k that pass each other, and less for a joiner in its first rounds.

        Two that ask each other at the same moment, each at one half, would only change places.
        """
        share = 1 / (passing + 1)
        if not self.ramp:
            return share
        low, high = EASE
        done = min(b.swaps for b in self.blocks[first : first + count]) / self.ramp
        return min(share, low + (high - low) * min(done, 1.0))

    def _release_overdue(self, now: float) -> None:
        after = self._overdue_after
        for entry in self._open.values():
            if now < entry.opened.at + after:  # exactly as `wake` computes it
                break
            if entry.holds:
                self.tally.overdue += entry.opened.count
                self._release(entry)

    def _repeats(self, now: float) -> Iterator[Repeat]:
        for exchange, entry in self._open.items():
            if now >= entry.again:
                entry.pause = min(2 * entry.pause, 10 * self.config.floor)
                entry.again = now + entry.pause
                self.tally.repeated += 1
                yield Repeat(entry.opened.partner, exchange)

    def _open_due(self, now: float) -> Iterator[Opened]:
        """Consecutive due blocks with the same partner travel in one message."""
        group: list[int] = []
        partner = ""
        for i, chosen in self._choices(now):
            if group and (chosen != partner or not self._joins(partner, group, i)):
                yield self._scheduled(partner, group, now)
                group = []
            partner, group = chosen, [*group, i]
        if group:
            yield self._scheduled(partner, group, now)

    def _choices(self, now: float) -> Iterator[tuple[int, str]]:
        """Due blocks, each with a partner that has credit for it."""
        planned: dict[str, int] = {}
        busy: set[str] = set()
        limit = self.limit
        for i in self.agenda.due(now):
            block = self.blocks[i]
            if self._alone or block.held >= limit or block.nbytes > self._budget:
                self.agenda.waiting.add(i)
                continue
            partner = block.choose(self.row, self._serving(i, planned, busy, now))
            if partner is None:
                self.agenda.schedule(i, now + self.interval, self.pace)
                continue
            planned[partner] = planned.get(partner, 0) + self.size(partner, i)
            self._budget -= block.nbytes
            yield i, partner

    def _open_owed(self, now: float) -> Iterator[Opened]:
        """What links that are behind have room for; a block's own schedule goes on beside it."""
        for partner in list(self.stream.behind):
            while (i := self._owed(partner, now)) is not None:
                group, i = [i], i + 1
                while i < len(self.blocks) and self._owes(partner, i) and self._joins(partner, group, i):
                    if not self._room(partner, i, sum(self.size(partner, g) for g in group), now):
                        break
                    group, i = [*group, i], i + 1
                yield self._start(partner, group, now)
                self._pay(partner, group)
                if self.limits is not None:
                    break  # the message counts against them once it has left

    def _owed(self, partner: str, now: float) -> int | None:
        """Where to begin the next message; None where nothing is owed, or there is no room (all blocks are about as long)."""
        if not self._room(partner, 0, 0, now):
            return None
        span = max(1, self.link(partner).message // max(1, self.size(partner, 0)))
        return self.stream.next(partner, span, self.limit, now, lambda i: self.free(partner, i))

    def _pay(self, partner: str, group: Sequence[int]) -> None:
        for i in group:
            self.blocks[i].pay(partner)

    def _owes(self, partner: str, i: int) -> bool:
        block = self.blocks[i]
        return block.held < self.limit and block.owes(partner) and self.free(partner, i)

    def _serving(self, i: int, planned: Mapping[str, int], busy: set[str], now: float) -> Callable[[str], bool]:
        """Whether a partner has room for the block, beside what is planned; who has not is `busy` for this tick, and served by
        the stream from now on.
        """

        def serves(partner: str) -> bool:
            if partner in busy or partner in self.stream.behind or not self.free(partner, i):
                return False
            if self._room(partner, i, planned.get(partner, 0), now):
                return True
            busy.add(partner)
            if not self.link(partner).paused(now) and not self.agenda.absent:  # a download goes before streams
                self.stream.behind[partner] = None
            return False

        return serves

    def _room(self, partner: str, i: int, planned: int, now: float) -> bool:
        """Whether credit and the limits let a block leave beside `planned` bytes."""
        link, nbytes = self.link(partner), planned + self.size(partner, i)
        if not link.room(nbytes) or link.paused(now):
            return False
        if self.limits is None:
            return True
        self._shut.add(partner)
        return (not planned or nbytes <= link.message) and self.limits.clear(partner, now)

    def _joins(self, partner: str, group: Sequence[int], i: int) -> bool:
        last = self.blocks[group[-1]]
        nbytes = sum(self.size(partner, g) for g in group) + self.size(partner, i)
        fits = nbytes <= self.link(partner).message and len(group) < BLOCKS
        return i == group[-1] + 1 and self.blocks[i].run == last.run and fits

    def _start(self, partner: str, group: Sequence[int], now: float) -> Opened:
        weight = self._weight(group[0], len(group), 1 + max(self.blocks[i].held for i in group))
        opened = Opened(partner, self._next, group[0], len(group), weight, now)
        self._next += 1
        nbytes = sum(self.size(partner, i) for i in group)
        link = self.link(partner)
        link.leave(opened.exchange, nbytes, now)
        pause = max(self.config.floor, 2 * link.expected())
        self._open[opened.exchange] = Open(opened, nbytes, again=now + pause, pause=pause)
        for i in group:
            block = self.blocks[i]
            block.answered = block.answered and block.held > 0
            block.held += 1
            block.swaps += 1
            self.most = max(self.most, block.swaps)
        self.stream.met(partner, group[0], (1 << len(group)) - 1, now)
        return opened

    def _scheduled(self, partner: str, group: Sequence[int], now: float) -> Opened:
        opened = self._start(partner, group, now)
        for i in group:
            self.agenda.schedule(i, now + self.interval, self.pace)
        return opened

    def _close(self, exchange: int, receipt: float | None = None) -> Open:
        entry = self._open.pop(exchange)
        link = self.link(entry.opened.partner)
        if receipt is None:
            link.unsend(exchange)
        else:
            link.receipt(exchange, receipt)
        self._loose = True
        self._release(entry)
        return entry

    def _release(self, entry: Open) -> None:
        if not entry.holds:
            return
        entry.holds = False
        for i in range(entry.opened.first, entry.opened.first + entry.opened.count):
            self.blocks[i].held -= 1
            self.blocks[i].answered = False

    # --- for tests -------------------------------------------------------------------------------------------------

    def validate_state(self) -> None:
        """Raises AssertionError where the machine contradicts itself."""
        held = [0] * len(self.blocks)
        for entry in self._open.values():
            for i in range(entry.opened.first, entry.opened.first + entry.opened.count):
                held[i] += entry.holds
        assert held == [b.held for b in self.blocks]
        assert all(b.swaps >= 0 and b.due >= 0 for b in self.blocks)
        self._answers.validate_state()
        assert max(held, default=0) <= self.config.open_max
        self.agenda.validate_state()
        for partner, link in self.links.items():
            assert link.under_way == sum(p.nbytes for p in link.parcels.values())
            assert set(link.parcels) == {e for e, o in self._open.items() if o.opened.partner == partner}
