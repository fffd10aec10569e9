"""Every element of every tensor lies in exactly one block."""

from collections import Counter
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from optim.kinds import Kind
from p2p.errors import ConfigError
from p2p.state.layout import lay_out
from p2p.state.schema import Entry

shapes = st.lists(st.integers(1, 7), max_size=3).map(tuple)
dtypes = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.bool])
entries = st.lists(st.tuples(st.sampled_from(list(Kind)), shapes, dtypes), max_size=12).map(
    lambda rows: [Entry(f"t{i}", kind, shape, dtype) for i, (kind, shape, dtype) in enumerate(rows)]
)


@given(entries, st.integers(1, 20).map(lambda n: 8 * n))
def test_every_element_is_in_exactly_one_block(tensors: list[Entry], block_bytes: int) -> None:
    runs, blocks = lay_out(tensors, block_bytes)
    seen: Counter[tuple[int, int]] = Counter()
    for block in blocks:
        at = block.start
        for s in block.segments:
            assert s.at == at
            at += s.stop - s.start
            seen.update((s.tensor, element) for element in range(s.start, s.stop))
        assert at == block.stop
    assert seen == Counter({(i, k): 1 for i, e in enumerate(tensors) for k in range(prod(e.shape))})
    assert sum(run.elements for run in runs) == sum(prod(e.shape) for e in tensors)


@given(entries, st.integers(1, 20).map(lambda n: 8 * n))
def test_blocks_are_numbered_run_by_run_and_full_but_for_the_last(tensors: list[Entry], block_bytes: int) -> None:
    runs, blocks = lay_out(tensors, block_bytes)
    assert [b.index for b in blocks] == list(range(len(blocks)))
    assert [b.run for b in blocks] == sorted(b.run for b in blocks)
    for block in blocks:
        run = runs[block.run]
        assert block.nbytes == block.elements * block.dtype.itemsize <= block_bytes
        assert block.nbytes == block_bytes or block.stop == run.elements
        assert (block.kind, block.dtype) == (run.kind, run.copy_dtype)
        assert all((tensors[s.tensor].kind, tensors[s.tensor].dtype) == (run.kind, run.dtype) for s in block.segments)


def test_the_cut_in_numbers() -> None:
    tensors = [
        Entry("w", Kind.PARAMETER, (2, 3), torch.float32),
        Entry("h", Kind.PARAMETER, (5,), torch.float16),
        Entry("m", Kind.SIGNED, (2, 3), torch.float32),
        Entry("b", Kind.PARAMETER, (), torch.float32),
    ]
    runs, blocks = lay_out(tensors, 16)
    assert [(r.kind.name, str(r.dtype), r.elements) for r in runs] == [
        ("PARAMETER", "torch.float16", 5), ("PARAMETER", "torch.float32", 7), ("SIGNED", "torch.float32", 6)
    ]  # fmt: skip
    assert [(b.run, b.start, b.stop, b.nbytes) for b in blocks] == [
        (0, 0, 4, 16), (0, 4, 5, 4), (1, 0, 4, 16), (1, 4, 7, 12), (2, 0, 4, 16), (2, 4, 6, 8)
    ]  # fmt: skip
    assert blocks[3].segments == ((0, 4, 6, 4), (3, 0, 1, 6))


@pytest.mark.parametrize("block_bytes", [0, -8, 12, 4])
def test_an_unaligned_grid_is_refused(block_bytes: int) -> None:
    with pytest.raises(ConfigError, match="multiple of 8"):
        lay_out([], block_bytes)
