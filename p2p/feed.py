"""What a node's trainer is fed with: samplers, batches, streams and epochs over the agent's leases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, TypeVar

from p2p.agent.work import Works
from p2p.batches import PartBatches
from p2p.data import Epoch, LeaseSampler, Place, RotatedSampler, SortedSampler, Split, chunk_size
from p2p.desk import AgentDesk, Caller
from p2p.errors import ConfigError
from p2p.stream import Stream

T = TypeVar("T")


class Feed:
    """All that one script reads. `ready(what)` waits for the members that are expected; `place` is the node's in the view,
    `present` its place among those that are not suspected to be dead."""

    def __init__(
        self, caller: Caller, works: Works, seed: int, epoch: Epoch, ready: Callable[[str], None], place: Place, present: Place
    ) -> None:
        self._caller, self._works = caller, works
        self._seed = seed
        self._epoch = epoch
        self._ready = ready
        self._place, self._present = place, present
        self._samplers: list[LeaseSampler] = []
        self.resumed: list[Mapping[str, Any]] = []
        """States of the samplers that the script will make, in order."""

    def midway(self, epoch: int) -> bool:
        """Whether the states that are resumed are of the middle of a pass, `epoch` epochs having been begun."""
        return any(state["floor"] // -(-state["length"] // state["size"]) < epoch for state in self.resumed)

    def state(self) -> list[dict[str, Any]]:
        """Of all samplers, for a checkpoint."""
        return [sampler.state_dict() for sampler in self._samplers]

    def sampler(
        self, data: Sized, chunk: int | None, split: Split, labels: Sequence[int] | None
    ) -> LeaseSampler | RotatedSampler | SortedSampler:
        """See Node.sampler."""
        if split == "shuffled":
            return self._leased(data, chunk)
        if split == "rotated":
            return RotatedSampler(len(data), self._seed, self._place, self._epoch)
        if split != "sorted":
            raise ConfigError(f"split is {split!r}: it can be 'shuffled', 'rotated' or 'sorted'")
        return SortedSampler(len(data), labels, self._seed, self._present, self._epoch)

    def batches(self, data: Sized, batch: int | str, micro: int | None, chunk: int | None) -> PartBatches:
        """See Node.batches."""
        return PartBatches(self._leased(data, chunk), batch, micro, self._place)

    def stream(self, items: Iterable[T]) -> Stream[T]:
        """See Node.stream."""
        return Stream(items, self._place)

    def epochs(self, count: int) -> Iterator[int]:
        """See Node.epochs."""
        self._ready("epochs()")
        first = self._caller.call(self._works.current())
        try:
            for number in range(max(self._epoch.number - 1, 0) if first is None else first, count):
                yield self._turn(number)
                self.finish()
            while self._caller.call(self._works.more(count - 1)):
                yield self._turn(count - 1)
                self.finish()
        finally:
            self._epoch.pinned = None

    @property
    def duplicates(self) -> int:
        """Chunks that were finished here after another node had finished them too."""
        return sum(leases.duplicates for leases in self._works.all)

    def stepped(self) -> None:
        """An optimizer step was taken."""
        for sampler in self._samplers:
            sampler.stepped()

    def finish(self) -> None:
        """The passes are over; what was drawn in vain goes back."""
        for sampler in self._samplers:
            sampler.finish()

    def rest(self) -> None:
        """The trainer takes no more work: what it holds is for the others."""
        self.finish()
        self._caller.call(self._works.rest())

    def _leased(self, data: Sized, chunk: int | None) -> LeaseSampler:
        if not hasattr(data, "__len__"):
            raise ConfigError(f"{type(data).__name__} has no length, so there is nothing to choose from: use node.stream()")
        size = chunk_size(len(data), chunk)
        leases = self._caller.call(self._works.open(-(-len(data) // size), size))
        desk = AgentDesk(self._caller, self._works, leases, lambda: self._ready("sampling"))
        sampler = LeaseSampler(len(data), size, self._seed, desk, self._epoch)
        if len(self._samplers) < len(self.resumed):
            sampler.load_state_dict(self.resumed[len(self._samplers)])
        self._samplers.append(sampler)
        return sampler

    def _turn(self, epoch: int) -> int:
        self._epoch.pinned = epoch
        return epoch
