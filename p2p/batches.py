"""Batches of a size that the whole swarm keeps: each node has its part of every step, in pieces that fit into memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from p2p.data import LeaseSampler, Place
from p2p.drawn import Batches
from p2p.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Micro:
    """One batch from the loader, a piece of a node's part of a step."""

    size: int
    weight: float
    """By which its mean loss is multiplied, so that the steps of all nodes together are the step of one large batch."""
    last: bool
    """The part is whole: now step."""


class PartBatches(Batches):
    """A batch sampler for `DataLoader(data, batch_sampler=...)`.

    With `batch="global:256"` the nodes' parts of a step add up to 256, whatever their number: 256 / n each, the first
    256 % n nodes of the view one more. That holds where nodes have the same view, so not for the steps between a death or a
    join and the moment when all know of it, nor for the last step of a pass. With a number, that is each node's own.
    `micro` cuts a part into pieces of at most so many samples; `now` says which piece the loader has just handed out:

        (loss(model(x), y) * batches.now.weight).backward()
        if batches.now.last:
            optimizer.step()
            optimizer.zero_grad()
    """

    def __init__(self, sampler: LeaseSampler, batch: int | str, micro: int | None, place: Place) -> None:
        self.sampler = sampler
        self.total, self.is_global = _parsed(batch)
        if micro is not None and micro < 1:
            raise ConfigError(f"micro={micro}: a piece has at least one sample")
        self._micro = micro
        self._place = place
        self.ends = []
        self._pieces: list[Micro] = []

    def __len__(self) -> int:
        """About as many batches as fall to this node in an epoch."""
        part = self._part()[0]
        return -(-len(self.sampler) // part) * len(_cut(part, self._micro))

    def __iter__(self) -> Iterator[list[int]]:
        self.sampler.finish()  # the pass before is told by its own ends
        self.ends, self._pieces = [], []
        samples = iter(self.sampler)
        while part := list(islice(samples, self._part()[0])):
            sizes, at = _cut(len(part), self._micro), 0
            for number, size in enumerate(sizes, 1):
                self.ends.append(size + (self.ends[-1] if self.ends else 0))
                self._pieces.append(Micro(size, size * self._part()[1] / self.total, number == len(sizes)))
                yield part[at : at + size]
                at += size

    @property
    def now(self) -> Micro:
        """What the batch is that the loader handed out last."""
        handed = self.sampler.source.batches
        return self._pieces[(len(self._pieces) if handed is None else handed) - 1]

    def _part(self) -> tuple[int, int]:
        """Samples of this node in one step, and among how many nodes a step is shared."""
        if not self.is_global:
            return self.total, 1
        rank, count = self._place()
        return max(1, self.total // count + (rank < self.total % count)), count


def _cut(part: int, micro: int | None) -> list[int]:
    """Equal pieces of at most `micro`, the first ones one larger."""
    pieces = -(-part // (micro or part))
    return [part // pieces + (index < part % pieces) for index in range(pieces)]


def _parsed(batch: int | str) -> tuple[int, bool]:
    match = re.fullmatch(r"(global:)?([1-9][0-9]{0,8})", str(batch))
    if match is None:
        raise ConfigError(f"batch={batch!r}: give a number for each node's own, or 'global:256' for the swarm's")
    return int(match[2]), match[1] is not None
