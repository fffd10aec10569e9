"""What a link that can't keep up carries: of the blocks owed to its partner, those whose copy there is most out of date.

How far a copy is out of date is the time since the two last exchanged the block, weighted by how much the block has been found
to differ, against others of its kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence

from p2p.agent.round_robin import Block

RECENT = 0.25  # weight of the latest difference of a block


class Stream:
    """Of one node's links; `offset` sets two ends of a link apart, where all blocks are equally old."""

    def __init__(self, blocks: Sequence[Block], offset: int) -> None:
        self.behind: dict[str, None] = {}
        """Partners to whom blocks were due that their links had no room for."""
        self._blocks = blocks
        self._offset = offset
        self._met: dict[str, dict[int, float]] = defaultdict(dict)  # by partner and block: when they exchanged it last
        self._change = [0.0] * len(blocks)  # root mean square of differences
        self._typical: dict[int, float] = defaultdict(float)  # of a run

    def partners(self, live: Container[str]) -> None:
        """The view changed."""
        self.behind = {p: None for p in self.behind if p in live}
        for gone in [p for p in self._met if p not in live]:
            del self._met[gone]

    def met(self, partner: str, first: int, bits: int, now: float) -> None:
        """Blocks are on their way to the partner, or came from it: bit i is block first + i."""
        for i in range(bits.bit_length()):
            if bits >> i & 1:
                self._met[partner][first + i] = now

    def differed(self, i: int, distance: float) -> None:
        """A block was found to differ from somebody's copy of it, by this root mean square."""
        run = self._blocks[i].run
        self._typical[run] += 0.01 * (distance - self._typical[run]) if self._typical[run] else distance
        self._change[i] += RECENT * (distance - self._change[i])

    def next(self, partner: str, span: int, limit: int, now: float, free: Callable[[int], bool] = lambda i: True) -> int | None:
        """The first block of the most urgent stretch that is owed to the partner: of so many blocks as a message takes.

        None where there is none that is not held; and the partner is behind no more, where nothing is owed that is `free`.
        """
        owed = [(i, block) for i, block in enumerate(self._blocks) if block.owes(partner) and free(i)]
        if not owed:
            self.behind.pop(partner, None)
        stretches = defaultdict[int, float](float)
        first = dict[int, int]()
        for i, block in owed:
            if block.held < limit:
                stretches[i // span] = max(stretches[i // span], self._urgency(partner, i, now))
                first.setdefault(i // span, i)
        if not first:
            return None
        turn = self._offset % (len(self._blocks) // span + 1)
        return first[max(first, key=lambda k: (stretches[k], k >= turn, -k))]

    def _urgency(self, partner: str, i: int, now: float) -> float:
        typical = self._typical[self._blocks[i].run]
        weight = 1.0 + (self._change[i] / typical if typical else 0.0)
        return (now - self._met[partner].get(i, -1.0)) * weight
