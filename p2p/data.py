"""Samplers: which samples a node works on in an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from torch.utils.data import Sampler

from p2p.agent.finished import Finished
from p2p.drawn import Drawn, Source, source
from p2p.errors import ConfigError, StateError
from p2p.permutation import Permutation

Split = Literal["shuffled", "rotated", "sorted"]
Place = Callable[[], tuple[int, int]]
"""The node's rank in the present view, and the view's length."""

CHUNKS = 2048
"""Chunks an epoch has at most by default: fine enough to share out evenly, and 256 bytes say which are done."""
SMALLEST = 16
"""Samples in a chunk at least, by default: what is asked for and told once per chunk."""
PIECE = 1024
"""Samples of an order that are computed at once."""
MOST = 1 << 16
"""Chunks an epoch may have: 8 KiB in every word about work."""


@dataclass(slots=True)
class Epoch:
    """The swarm's epoch, as this node counts it."""

    number: int = 0
    """Epochs begun; a joiner begins with its donor's."""
    pinned: int | None = None
    """Within `node.epochs()`: the one whose turn it is."""

    def enter(self, following: int) -> int:
        """The epoch of the pass that begins now: the pinned one, else `following`."""
        epoch = following if self.pinned is None else self.pinned
        self.number = max(self.number, epoch + 1)
        return epoch


class Desk(Protocol):
    """Where a sampler gets chunks from and reports them: the agent's leases, seen from the trainer's thread."""

    def open(self) -> None:
        """Be among the swarm, and know what is done already."""

    def begin(self, epoch: int) -> None: ...
    def take(self) -> int | None:
        """The next chunk; None where nothing is left for this node."""

    def progress(self, samples: int, chunks: Sequence[int]) -> None: ...
    def release(self, chunks: Sequence[int]) -> None: ...
    def restore(self, finished: Finished, begun: Sequence[int]) -> None: ...
    def finished(self) -> Finished: ...
    def share(self) -> float: ...


class LeaseSampler(Sampler[int]):
    """Chunks of each epoch's order (`seed` and epoch decide it), taken one after the other as this node gets on.

    All nodes together process every sample of an epoch at least once, whoever dies, and exactly once where nobody does.
    What a death leaves over is taken up by the others: within the same epoch, or in front of their next one. A pass ends
    for a node when nothing is left that it should take; it never waits for another node. A chunk counts as done when an
    optimizer step was taken on its last sample, whatever DataLoader workers have drawn ahead.
    """

    def __init__(self, length: int, size: int, seed: int, desk: Desk, epoch: Epoch) -> None:
        self.length = length
        self.size = size
        self.chunks = -(-length // size)
        self._seed = seed
        self._desk = desk
        self._epoch = epoch
        self._next = 0
        self._order = Permutation(length, seed, 0)
        self._order_epoch = 0
        self._left: list[tuple[int, int]] = []  # begun earlier, and used up to here
        self._drawn = Drawn()
        self._count = 0  # samples drawn in this pass
        self._exhausted = True
        self.source = Source(None)

    def __len__(self) -> int:
        """About as many samples as fall to this node in an epoch."""
        return max(1, round(self.length * self._desk.share()))

    def __iter__(self) -> Iterator[int]:
        self.finish()
        self._desk.open()
        first = self._next == 0
        yield from self._pass()
        if first and not self._count and self._epoch.pinned is None:
            yield from self._pass()  # who joins at the very end of an epoch finds all of it taken
        self._exhausted = True

    def _pass(self) -> Iterator[int]:
        done = self._desk.finished()
        epoch = self._epoch.enter(max(self._next, done.floor // self.chunks))
        self._next = epoch + 1
        self._desk.begin(epoch)
        self._drawn, self._count, self._exhausted = Drawn(), 0, False
        self.source = source()
        left, self._left = [(chunk, first) for chunk, first in self._left if chunk not in done], []
        for chunk, first in left:
            yield from self._samples(chunk, first)
        while (taken := self._desk.take()) is not None:
            yield from self._samples(taken, 0)

    def stepped(self) -> None:
        """An optimizer step was taken: what the trainer has seen is used."""
        samples, chunks = self._drawn.use(self.source.delivered(self._count, self._exhausted))
        if samples:
            self._desk.progress(samples, chunks)

    def finish(self) -> None:
        """The pass is over, or was broken off: chunks that were only drawn go back, one that was begun is kept for later."""
        self.stepped()
        self._left += [(chunk, first) for chunk, first in self._drawn.rest if first]
        untouched = [chunk for chunk, first in self._drawn.rest if not first]
        if untouched:
            self._desk.release(untouched)
        self._drawn, self._count, self.source = Drawn(), 0, Source(None)

    def state_dict(self) -> dict[str, Any]:
        """What the swarm has done, as far as this node knows, and what this node has begun; JSON can hold it."""
        finished = self._desk.finished()
        begun = [*self._left, *((chunk, first) for chunk, first in self._drawn.rest if first)]
        return {
            "length": self.length,
            "size": self.size,
            "floor": finished.floor,
            "finished": finished.bitmap.hex(),
            "begun": [list(piece) for piece in begun],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there, between two passes. Raises StateError for the state of another data set."""
        for name in ("length", "size"):
            if state[name] != getattr(self, name):
                raise StateError(
                    f"the sampler's state is of a data set with {name} {state[name]}; here it is {getattr(self, name)}"
                )
        self._left = [(int(chunk), int(first)) for chunk, first in state["begun"]]
        finished = Finished(int(state["floor"]), bytes.fromhex(state["finished"]))
        self._desk.restore(finished, [chunk for chunk, _ in self._left])

    def _samples(self, chunk: int, first: int) -> Iterator[int]:
        epoch, place = divmod(chunk, self.chunks)
        if epoch != self._order_epoch:
            self._order, self._order_epoch = Permutation(self.length, self._seed, epoch), epoch
        samples = self._order[place * self.size : (place + 1) * self.size].tolist()
        self._drawn.add(chunk, first, len(samples))
        for sample in samples[first:]:
            self._count += 1
            yield sample


def chunk_size(length: int, chunk: int | None) -> int:
    """Samples per chunk: `chunk`, else what suits. The same on every node, for it follows from the length alone."""
    if length < 1:
        raise ConfigError("the data set is empty: there is nothing to share out")
    size = max(SMALLEST, -(-length // CHUNKS)) if chunk is None else chunk
    if size < 1 or -(-length // size) > MOST:
        raise ConfigError(f"chunk={chunk}: for {length} samples it can be from {-(-length // MOST)} to {length}")
    return size


class RotatedSampler(Sampler[int]):
    """Every node has all samples, in the same order of each epoch, but begins a share further than the one before it.

    Tyagi and Swany, "SelSync" (2023), SelDP: the order is cut into as many runs as there are nodes, and node k of the view goes
    through runs k, k + 1 ... and round. So at any time the nodes work on different samples, as with shares, and one that is
    long without an exchange has still seen everything. An epoch is n times as long as where work is shared out.
    """

    def __init__(self, length: int, seed: int, place: Place, epoch: Epoch) -> None:
        if length < 1:
            raise ConfigError("the data set is empty: there is nothing to go through")
        self._length = length
        self._seed = seed
        self._place = place
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        rank, count = self._place()
        order = Permutation(self._length, self._seed, self._epoch.enter(self._epoch.number))
        begin = self._length * rank // count
        for stretch in ((begin, self._length), (0, begin)):
            for first in range(*stretch, PIECE):
                yield from order[first : min(first + PIECE, stretch[1])].tolist()

    def __len__(self) -> int:
        return self._length


class SortedSampler(Sampler[int]):
    """For experiments: samples sorted by label and dealt in equal runs by rank, so that a node sees few labels.

    Ranked are the view's members that are not suspected to be dead: their labels would be forgotten before that is certain.
    The cut is made at `iter()` and kept for the epoch. Where nodes differ in whom they count, for the seconds that a join or a
    suspicion takes to be known, some samples are seen twice or not at all in that epoch.
    """

    def __init__(self, length: int, labels: Sequence[int] | None, seed: int, place: Place, epoch: Epoch) -> None:
        if labels is None or len(labels) != length:
            raise ConfigError(f"split='sorted' needs labels=, one for each of the {length} samples")
        self._length = length
        self._seed = seed
        self._place = place
        self._epoch = epoch
        self._order = np.argsort(np.asarray(labels), kind="stable")

    def __iter__(self) -> Iterator[int]:
        share = self._order[self._share()]
        rng = np.random.default_rng([self._seed, self._epoch.enter(self._epoch.number)])
        return iter(rng.permutation(share).tolist())

    def __len__(self) -> int:
        share = self._share()
        return len(range(self._length)[share])

    def _share(self) -> slice:
        rank, count = self._place()
        return slice(*(self._length * r // count for r in (rank, rank + 1)))
