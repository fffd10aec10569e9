"""The agenda: which blocks are due for an own swap, and when. A machine: it knows blocks and times, no partner.

A block is due one interval after its last own swap. Blocks may be spread, one after another over an interval; or have turns,
each a step of the period (`p2p.agent.turns`). A joiner's are absent until their state has come.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from p2p.agent.round_robin import Block
from p2p.agent.turns import turns

MATERIAL = 1.25  # by which factor what a link carries in a step has changed before turns are dealt anew


class Agenda:
    """Of one node's blocks: each is queued, waiting, or absent."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.spread = False  # blocks become due one after another over an interval, or have turns
        self.waiting: set[int] = set()  # due, but held, or there is nobody to ask
        self.absent: set[int] = set()  # their state is still on its way: they take no part
        self._blocks = blocks
        self._queue = [(0.0, i) for i in range(len(blocks))]
        self._spaced = False  # once they are
        self._turns: list[int] = []  # of each block, once the links have shown their rates: its step of the period
        self._dealt = 0, 0.0  # the period and the bytes a step that they were dealt for

    @property
    def next(self) -> float | None:
        """When a block is due, that doesn't wait."""
        return self._queue[0][0] if self._queue else None

    def due(self, now: float) -> list[int]:
        """Takes out all that are due, those that waited included; each must be given back, to wait or by `schedule`."""
        self.wake()
        return list(self._pop(now))

    def schedule(self, i: int, due: float, pace: float) -> None:
        """The block is due again; where it has turns, unless its turn comes first."""
        self._blocks[i].due = due + (pace / 2 if self._turns else 0.0)
        self._push(i)

    def hasten(self, blocks: Iterable[int], now: float) -> None:
        """These are due at once."""
        for i in blocks:
            self._blocks[i].due = now
        self._sort()

    def wake(self) -> None:
        """Those that waited are looked at again."""
        for i in self.waiting:
            self._push(i)
        self.waiting.clear()

    # --- a joiner's ------------------------------------------------------------------------------------------------

    def await_state(self) -> None:
        """None of the blocks is there yet."""
        self.absent = set(range(len(self._blocks)))
        self._queue.clear()
        self.waiting.clear()

    def arrived(self, blocks: Iterable[int] | None, due: float) -> set[int]:
        """These are there (None: all), and due then at the earliest; which of them were absent."""
        came = self.absent & set(blocks) if blocks is not None else self.absent
        self.absent = self.absent - came
        for i in came:
            self._blocks[i].due = max(self._blocks[i].due, due)
            self._push(i)
        return came

    # --- one after another -----------------------------------------------------------------------------------------

    def space(self, now: float, interval: float) -> None:
        """Where they are spread, once: from here on each block comes an interval after its last swap, so the order stays."""
        if not self.spread or self._spaced:
            return
        self._spaced, total, before = True, sum(block.nbytes for block in self._blocks), 0
        for block in self._blocks:
            block.due = now + interval * before / total
            before += block.nbytes
        self._queue = [(block.due, i) for i, block in enumerate(self._blocks)]

    def turn(self, step: int, period: int, carried: float, now: float, interval: float) -> None:
        """A step began: those whose turn it is are due. `carried`: what a link carries in a step, in bytes.

        Turns are dealt anew where that is much more or less than when they were dealt.
        """
        dealt, before = self._dealt
        if dealt != period or not before / MATERIAL < carried < before * MATERIAL:
            self._turns = turns([block.nbytes for block in self._blocks], carried, period)
            self._dealt = period, carried
        for block, turn in zip(self._blocks, self._turns, strict=True):
            if turn == step % period and block.due < now + interval:
                block.due = min(block.due, now)
        self._sort()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _push(self, i: int) -> None:
        heapq.heappush(self._queue, (self._blocks[i].due, i))

    def _pop(self, now: float) -> Iterator[int]:
        while self._queue and self._queue[0][0] <= now:
            yield heapq.heappop(self._queue)[1]

    def _sort(self) -> None:
        """Some blocks are due at another time."""
        self._queue = [(self._blocks[i].due, i) for _, i in self._queue]
        heapq.heapify(self._queue)

    def validate_state(self) -> None:
        """Raises AssertionError where a block is queued twice, or not at all."""
        queued = sorted([*(i for _, i in self._queue), *self.waiting, *self.absent])
        assert queued == list(range(len(self._blocks))), "each block is queued exactly once"
