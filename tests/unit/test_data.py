"""Samplers: what is drawn, what is used, and what goes back, with real DataLoaders and workers."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import pytest
import torch
from torch.utils.data import DataLoader

from p2p.agent.finished import Finished
from p2p.agent.leases import Begin, Leases, Wait
from p2p.batches import PartBatches
from p2p.config import WorkConfig
from p2p.data import Epoch, LeaseSampler, RotatedSampler, SortedSampler, chunk_size
from p2p.drawn import Drawn
from p2p.errors import ConfigError, StateError
from p2p.net.messages import Lease, Work
from p2p.permutation import Permutation
from p2p.stream import Stream

LABELS = [3, 1, 2, 1, 3, 2, 1, 2, 3, 0]
LENGTH, SIZE = 100, 10


class LocalDesk:
    """One node's leases without an agent; time passes when it has to wait."""

    def __init__(self, node: str, members: str, chunks: int, size: int) -> None:
        self.now = 0.0
        self.leases = Leases(node, 0, chunks, size, WorkConfig(), random.Random(0), 1 << 20, 0.0)
        self.leases.seat(members, 0.0)
        self.released: list[int] = []

    def open(self) -> None: ...

    def begin(self, epoch: int) -> None:
        self.leases.begin(epoch, self.now)

    def take(self) -> int | None:
        while isinstance(answer := self.leases.take(self.now), Wait):
            self.now = answer.until
        return answer.chunk if isinstance(answer, Begin) else None

    def progress(self, samples: int, chunks: Sequence[int]) -> None:
        self.leases.progress(samples, chunks, self.now)

    def release(self, chunks: Sequence[int]) -> None:
        self.released += chunks
        self.leases.release(chunks, self.now)

    def restore(self, finished: Finished, begun: Sequence[int]) -> None:
        self.leases.restore(finished, begun, self.now)

    def finished(self) -> Finished:
        return Finished(self.leases.finished.floor, self.leases.finished.bitmap)

    def share(self) -> float:
        return self.leases.share


def sampler(length: int = LENGTH, size: int = SIZE, node: str = "a", members: str = "a") -> tuple[LeaseSampler, LocalDesk]:
    desk = LocalDesk(node, members, -(-length // size), size)
    return LeaseSampler(length, size, 7, desk, Epoch()), desk


def steps(loader: DataLoader[int], made: LeaseSampler) -> Iterator[list[int]]:
    """What a training loop sees: a step after each batch."""
    for batch in loader:
        yield batch.tolist()
        made.stepped()


# --- drawn and used -------------------------------------------------------------------------------------------------


def test_drawn_pieces_are_used_in_order() -> None:
    drawn = Drawn()
    drawn.add(5, 0, 10)
    drawn.add(3, 4, 10)
    assert drawn.use(4) == (4, [])
    assert drawn.use(4) == (0, [])
    assert drawn.use(12) == (8, [5])
    assert drawn.rest == [(3, 6)]
    assert drawn.use(99) == (4, [3])
    assert drawn.use(99) == (0, [])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch", [1, 7, 10, 32])
def test_every_sample_is_seen_once_an_epoch(workers: int, batch: int) -> None:
    made, desk = sampler()
    loader = DataLoader(range(LENGTH), batch_size=batch, sampler=made, num_workers=workers)  # type: ignore[arg-type]
    first = [i for seen in steps(loader, made) for i in seen]
    assert desk.leases.complete(0)
    second = [i for seen in steps(loader, made) for i in seen]
    assert sorted(first) == sorted(second) == list(range(LENGTH))
    assert first != second
    assert desk.leases.duplicates == 0


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "prefetch_factor": 5}, {"num_workers": 1}])
def test_a_chunk_is_finished_when_a_step_was_taken_on_its_last_sample(options: dict[str, int]) -> None:
    made, desk = sampler()
    loader = DataLoader(range(LENGTH), batch_size=4, sampler=made, **options)  # type: ignore[arg-type]
    count = 0
    for batch in loader:
        assert desk.finished().below(10) == count // SIZE
        made.stepped()
        count += len(batch)
        assert desk.finished().below(10) == count // SIZE
    assert desk.leases.complete(0)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_pass_that_is_broken_off_gives_back_what_was_only_drawn(persistent: bool) -> None:
    made, desk = sampler()
    loader = DataLoader(
        range(LENGTH),  # type: ignore[arg-type]
        batch_size=4,
        sampler=made,
        num_workers=2,
        persistent_workers=persistent,
    )
    seen: list[int] = []
    for batch in steps(loader, made):
        seen += batch
        if len(seen) == 24:
            break
    made.stepped()
    made.finish()
    assert desk.finished().below(10) == 2
    assert len(desk.released) >= 1
    made._epoch.pinned = 0
    seen += [i for batch in steps(loader, made) for i in batch]
    assert sorted(seen) == list(range(LENGTH))
    assert desk.leases.duplicates == 0


def test_samples_that_drop_last_drops_are_no_work_for_others() -> None:
    made, desk = sampler(length=103)
    loader = DataLoader(range(103), batch_size=10, sampler=made, num_workers=2, drop_last=True)  # type: ignore[arg-type]
    assert sum(len(seen) for seen in steps(loader, made)) == 100
    made.finish()
    assert desk.leases.complete(0)


def test_accumulated_batches_without_a_step_are_used_at_the_end() -> None:
    made, desk = sampler()
    loader = DataLoader(range(LENGTH), batch_size=10, sampler=made, num_workers=2)  # type: ignore[arg-type]
    for number, _ in enumerate(loader, 1):
        if number % 4 == 0:
            made.stepped()
            assert desk.finished().below(10) == number
    assert desk.finished().below(10) == 8
    made.finish()
    assert desk.leases.complete(0)


def test_a_plain_loop_uses_what_it_draws() -> None:
    made, desk = sampler()
    for number, _ in enumerate(made, 1):
        made.stepped()
        assert desk.finished().below(10) == number // 10
    assert desk.leases.complete(0)


def test_without_batches_one_by_one() -> None:
    made, desk = sampler()
    loader = DataLoader(range(LENGTH), batch_size=None, sampler=made, num_workers=1)  # type: ignore[arg-type]
    for number, _ in enumerate(loader, 1):
        made.stepped()
        assert desk.finished().below(10) == number // 10


class Reordering(torch.utils.data.Sampler[list[int]]):
    def __init__(self, made: LeaseSampler) -> None:
        self.made = made

    def __iter__(self) -> Iterator[list[int]]:
        yield sorted(self.made)


def test_what_cant_be_followed_is_refused() -> None:
    made, _ = sampler()
    with pytest.raises(ConfigError, match=r"Reordering: take one from node\.batches"):
        list(DataLoader(range(LENGTH), batch_sampler=Reordering(made)))  # type: ignore[arg-type]
    made, _ = sampler()
    with pytest.raises(ConfigError, match="in_order"):
        list(DataLoader(range(LENGTH), sampler=made, num_workers=1, in_order=False))  # type: ignore[arg-type]


# --- resume ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [1, 5, 6, 13, 24])
def test_a_resume_in_mid_epoch_sees_the_rest_once(workers: int, stop: int) -> None:
    made, _ = sampler()
    loader = DataLoader(range(LENGTH), batch_size=4, sampler=made, num_workers=workers)  # type: ignore[arg-type]
    seen: list[int] = []
    for number, batch in enumerate(steps(loader, made), 1):
        seen += batch
        if number == stop:
            break
    made.stepped()  # the loop above stopped before it
    state = json.loads(json.dumps(made.state_dict()))
    again, desk = sampler()
    again.load_state_dict(state)
    loader = DataLoader(range(LENGTH), batch_size=4, sampler=again, num_workers=workers)  # type: ignore[arg-type]
    seen += [i for batch in steps(loader, again) for i in batch]
    assert Counter(seen) == Counter(range(LENGTH))
    assert desk.leases.complete(0)
    made.finish()


def test_a_state_of_another_data_set_is_refused() -> None:
    made, _ = sampler()
    state = made.state_dict()
    other, _ = sampler(length=90)
    with pytest.raises(StateError, match="length 100; here it is 90"):
        other.load_state_dict(state)


# --- epochs, cuts, lengths ------------------------------------------------------------------------------------------


def test_a_joiner_begins_in_the_swarms_epoch() -> None:
    made, desk = sampler()
    desk.leases.finished.merge(Finished(34))
    assert len(list(made)) == 60
    assert made._epoch.number == 4


def test_a_joiner_at_the_end_of_an_epoch_goes_on_with_the_next() -> None:
    made, desk = sampler(members="ab")
    others = Work(0, 10, 0, ((1 << 10) - 2).to_bytes(2, "little"), (Lease("b", 1, 0.0, 10.0, 1, (0,)),), False)
    desk.leases.handle("b", others, 0.0)
    assert len(list(made)) > LENGTH / 2  # of epoch 1: b has the last chunk of epoch 0
    assert made._epoch.number == 2


def test_who_is_far_behind_passes_over_what_is_done() -> None:
    made, desk = sampler()
    assert len(list(made)) == LENGTH
    made.finish()
    desk.leases.finished.merge(Finished(30))
    made._next = 1
    made._epoch.pinned = 1
    assert list(made) == []


def test_the_length_follows_the_share() -> None:
    made, desk = sampler(members="abcd")
    loader = DataLoader(range(LENGTH), batch_size=5, sampler=made)  # type: ignore[arg-type]
    assert (len(made), len(loader)) == (25, 5)
    desk.leases._slowness["a"] = 4.0
    assert len(made) == 8  # 100 / 13


@pytest.mark.parametrize(
    ("length", "chunk", "size"),
    [(1, None, 16), (1797, None, 16), (60_000, None, 30), (1_281_167, None, 626), (100, 7, 7), (10**9, 20_000, 20_000)],
)
def test_chunk_sizes(length: int, chunk: int | None, size: int) -> None:
    assert chunk_size(length, chunk) == size


@pytest.mark.parametrize(
    ("length", "chunk", "said"), [(0, None, "empty"), (100, 0, "from 1 to 100"), (10**9, 16, "from 15259 to")]
)
def test_chunks_that_cant_be(length: int, chunk: int | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        chunk_size(length, chunk)


# --- parts of a global batch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "parts"), [(3, [33, 32, 32]), (2, [49, 48]), (1, [97])])
def test_parts_add_up_to_the_global_batch(nodes: int, parts: list[int]) -> None:
    found = []
    for rank in range(nodes):
        made, _ = sampler(length=1000)
        batches = PartBatches(made, "global:97", None, lambda rank=rank: (rank, nodes))  # type: ignore[misc]
        found.append([len(batch) for batch in batches][:-1])
    assert [set(sizes) for sizes in found] == [{part} for part in parts]


def test_a_part_follows_the_view() -> None:
    made, _ = sampler(length=1000)
    view = [0, 3]
    batches = iter(PartBatches(made, "global:97", None, lambda: (view[0], view[1])))
    assert len(next(batches)) == 33
    view[:] = [0, 2]
    assert len(next(batches)) == 49


@pytest.mark.parametrize("workers", [0, 2])
def test_pieces_weigh_as_much_as_their_samples_in_the_whole(workers: int) -> None:
    made, desk = sampler(length=1000)
    batches = PartBatches(made, "global:97", 10, lambda: (0, 3))
    loader = DataLoader(range(1000), batch_sampler=batches, num_workers=workers)  # type: ignore[arg-type]
    pieces = []
    for batch in loader:
        assert len(batch) == batches.now.size <= 10
        pieces.append(batches.now)
        if batches.now.last:
            made.stepped()
            assert desk.finished().below(100) == sum(piece.size for piece in pieces) // SIZE
    assert [piece.size for piece in pieces[:8]] == [9, 8, 8, 8, 9, 8, 8, 8]
    assert [piece.last for piece in pieces[:4]] == [False, False, False, True]
    assert sum(piece.weight for piece in pieces[:4]) == pytest.approx(33 * 3 / 97)
    assert desk.leases.complete(0)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_pass_after_pass_the_first_one_broken_off(workers: int) -> None:
    made, desk = sampler(length=1000)
    loader = DataLoader(range(1000), batch_sampler=PartBatches(made, 32, None, lambda: (0, 1)), num_workers=workers)  # type: ignore[arg-type]
    for most, chunks in ((6, 6 * 32 // SIZE), (100, 200), (100, 300)):
        for _ in islice(loader, most):
            made.stepped()
        assert desk.finished().below(300) == chunks


def test_the_own_batch_in_pieces() -> None:
    made, _ = sampler()
    batches = PartBatches(made, 25, 10, lambda: (1, 3))
    assert [len(batch) for batch in batches] == [9, 8, 8] * 4
    assert len(batches) == 12
    assert batches.now.weight == pytest.approx(8 / 25)


@pytest.mark.parametrize("batch", ["global:0", "global:-1", "local:5", "global:1e3", 0, -4, "", "global:"])
def test_a_batch_that_cant_be(batch: str | int) -> None:
    made, _ = sampler()
    with pytest.raises(ConfigError, match="give a number for each node's own, or 'global:256'"):
        PartBatches(made, batch, None, lambda: (0, 1))


# --- streams, and sorted for experiments ------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_stream_is_split_by_node_and_worker(workers: int) -> None:
    found = []
    for rank in range(3):
        stream = Stream(range(50), lambda rank=rank: (rank, 3))  # type: ignore[misc]
        found.append([int(i) for i in DataLoader(stream, batch_size=None, num_workers=workers)])
    assert sorted(i for share in found for i in share) == list(range(50))
    assert sorted(found[1]) == list(range(1, 50, 3))


def test_a_stream_takes_its_place_along_when_it_is_copied() -> None:
    view = [2, 3]
    stream = Stream(range(9), lambda: (view[0], view[1]))
    taken_along = copy.copy(stream)
    view[:] = [0, 1]
    assert list(taken_along) == [2, 5, 8]
    assert list(stream) == list(range(9))


def by_label(rank: int, count: int, epoch: int = 0) -> SortedSampler:
    return SortedSampler(10, LABELS, 7, lambda: (rank, count), Epoch(epoch))


def test_sorted_by_label_deals_few_labels_to_each() -> None:
    shares = [[LABELS[i] for i in by_label(rank, 5)] for rank in range(5)]
    assert [sorted(share) for share in shares] == [[0, 1], [1, 1], [2, 2], [2, 3], [3, 3]]
    assert sorted(i for rank in range(3) for i in by_label(rank, 3)) == list(range(10))
    assert [len(by_label(rank, 3)) for rank in range(3)] == [3, 3, 4]


def test_sorted_by_label_is_another_order_each_epoch() -> None:
    node = by_label(0, 1)
    first, second = list(node), list(node)
    assert first != second
    assert list(by_label(0, 1)) == first
    assert list(by_label(0, 1, epoch=1)) == second  # a joiner goes on in its donor's epoch


def rotated(rank: int, count: int, epoch: int = 0, length: int = 3000) -> list[int]:
    return list(RotatedSampler(length, 7, lambda: (rank, count), Epoch(epoch)))


def test_rotated_gives_everybody_everything_in_one_order_from_another_place() -> None:
    passes = [rotated(rank, 4) for rank in range(4)]
    assert all(sorted(samples) == list(range(3000)) for samples in passes)
    for rank, samples in enumerate(passes):
        assert samples == passes[0][750 * rank :] + passes[0][: 750 * rank]
    assert passes[0] == Permutation(3000, 7, 0)[:].tolist()


def test_at_no_time_two_nodes_work_on_the_same_samples() -> None:
    passes = [rotated(rank, 4) for rank in range(4)]
    for begin in range(0, 3000, 750):
        at_work = [set(samples[begin : begin + 750]) for samples in passes]
        assert sum(map(len, at_work)) == len(set.union(*at_work)) == 3000


def test_rotated_is_another_order_each_epoch_and_says_its_length() -> None:
    node = RotatedSampler(10, 7, lambda: (1, 3), Epoch())
    first, second = list(node), list(node)
    assert first != second and second == rotated(1, 3, epoch=1, length=10)
    assert len(node) == 10
    with pytest.raises(ConfigError, match="empty"):
        RotatedSampler(0, 7, lambda: (0, 1), Epoch())


@pytest.mark.parametrize("labels", [None, [1, 2]])
def test_sorted_needs_labels(labels: list[int] | None) -> None:
    with pytest.raises(ConfigError, match="split='sorted' needs labels=, one for each of the 10 samples"):
        SortedSampler(10, labels, 0, lambda: (0, 1), Epoch())
