"""The sampler: every sample once an epoch over all nodes of one view, the cut kept for the epoch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from p2p.data import Epoch, ShardedSampler
from p2p.errors import ConfigError

LABELS = [3, 1, 2, 1, 3, 2, 1, 2, 3, 0]


def sampler(length: int, rank: int, count: int, epoch: int = 0, **options: object) -> ShardedSampler:
    return ShardedSampler(range(length), 7, lambda: (rank, count), Epoch(epoch), **options)


@given(length=st.integers(0, 200), count=st.integers(1, 9), epoch=st.integers(0, 5), sort=st.booleans())
def test_a_view_together_sees_every_sample_once(length: int, count: int, epoch: int, sort: bool) -> None:
    options = {"split": "sorted", "labels": [i % 5 for i in range(length)]} if sort else {}
    nodes = [sampler(length, rank, count, epoch, **options) for rank in range(count)]
    sizes = [len(node) for node in nodes]
    shares = [list(node) for node in nodes]
    assert sorted(i for share in shares for i in share) == list(range(length))
    assert [len(share) for share in shares] == sizes
    assert max(sizes) - min(sizes) <= 1


def test_an_epoch_is_another_order_and_the_same_on_every_run() -> None:
    node = sampler(20, 0, 1)
    first, second = list(node), list(node)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert list(sampler(20, 0, 1)) == first
    assert list(sampler(20, 0, 1, epoch=1)) == second  # a joiner goes on in its donor's epoch


def test_the_cut_is_kept_for_the_epoch() -> None:
    view = [0, 2]
    node = ShardedSampler(range(10), 7, lambda: (view[0], view[1]), Epoch())
    share = iter(node)
    begun = [next(share) for _ in range(2)]
    view[:] = [1, 5]  # others joined
    assert len(begun + list(share)) == 5
    assert len(list(node)) == 2


def test_sorted_by_label_deals_few_labels_to_each() -> None:
    shares = [[LABELS[i] for i in sampler(10, rank, 5, split="sorted", labels=LABELS)] for rank in range(5)]
    assert [sorted(share) for share in shares] == [[0, 1], [1, 1], [2, 2], [2, 3], [3, 3]]


def test_a_loader_knows_its_length() -> None:
    node = sampler(10, 2, 3)
    loader = DataLoader(range(10), batch_size=2, sampler=node)  # type: ignore[arg-type]
    assert len(loader) == len(list(loader)) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"split": "sorted"}, "split='sorted' needs labels=, one for each of the 10 samples"),
        ({"split": "sorted", "labels": [1, 2]}, "needs labels="),
        ({"split": "random"}, "split is 'random': it can be 'shuffled' or 'sorted'"),
    ],
)
def test_a_split_that_cant_be_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        sampler(10, 0, 1, **options)
