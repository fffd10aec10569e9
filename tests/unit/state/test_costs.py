"""What a warm exchange costs, without a clock: how often each operation passes over the state, and what is allocated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from optim.codec import RAW
from p2p.state import Shards
from p2p.state.shards import Part

BLOCK = 256 * 1024
ELEMENTS = 4 * BLOCK // 4
VIEWS = {"view", "slice", "split_with_sizes", "detach", "alias", "as_strided", "narrow", "select", "unsqueeze"}


class Passes(TorchDispatchMode):
    """Counts the elements that operations go through, and the bytes of tensors that are new."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.allocated = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if name not in VIEWS:
            made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
            known = {t.untyped_storage().data_ptr() for t in given}
            self.allocated += sum(t.nbytes for t in made if t.untyped_storage().data_ptr() not in known)
            self.elements[name] += max((t.numel() for t in given), default=0) if len(given) < 4 else _whole(given, made)
        return result

    def over(self, elements: int) -> dict[str, float]:
        """Passes over so many elements, of what goes through at least a tenth of them."""
        return {name: count / elements for name, count in self.elements.items() if count >= elements / 10}


def _whole(given: list[Tensor], made: list[Tensor]) -> int:
    """Of an operation on lists: what it makes, or half of what it is given (from, to)."""
    return sum(t.numel() for t in made) or sum(t.numel() for t in given) // 2


@pytest.fixture(params=[1, 8], ids=["one tensor", "eight tensors"])
def tensors(request: pytest.FixtureRequest) -> list[Tensor]:
    """Four blocks; with eight tensors each block is gathered from two."""
    return [torch.ones(ELEMENTS // request.param) for _ in range(request.param)]


def counted(work: Callable[[], object]) -> Passes:
    """The second time: the first fills what is reused."""
    work()
    with Passes() as passes:
        work()
    return passes


def swap_in(shards: Shards) -> None:
    """Gossip changes every block."""
    change = torch.full((BLOCK // 4,), 0.5).view(torch.uint8)
    for block in shards.blocks:
        assert shards.settle(block.index, change, RAW, 0.5, 1).finite


GATHER = {1: {}, 8: {"cat": 1.0}}


def test_a_meeting_that_gossip_left_alone_copies_once(shards_of: Callable[..., Shards], tensors: list[Tensor]) -> None:
    shards = shards_of(*tensors, block_bytes=BLOCK)
    passes = counted(lambda: shards.meet(1))
    assert passes.over(ELEMENTS) == {"dot": 1.0, "copy_": 1.0, **GATHER[len(tensors)]}
    assert passes.allocated < 1024


def test_a_meeting_after_gossip_gathers_mixes_and_writes_once(shards_of: Callable[..., Shards], tensors: list[Tensor]) -> None:
    shards = shards_of(*tensors, block_bytes=BLOCK)
    swap_in(shards)
    shards.meet(1)
    swap_in(shards)
    with Passes() as passes:
        shards.meet(2)
    expected = {"dot": 1.0, "sub": 1.0, "add_": 1.0, "_foreach_copy_": 1.0, "copy_": 1.0, **GATHER[len(tensors)]}
    assert passes.over(ELEMENTS) == expected
    assert passes.allocated < 1024


def test_what_gossip_brings_is_counted_where_it_touched(shards_of: Callable[..., Shards], tensors: list[Tensor]) -> None:
    sums = [torch.zeros_like(t) for t in tensors]
    shards = shards_of(*tensors, block_bytes=BLOCK, brought=sums)
    alone = counted(lambda: shards.meet(1))
    assert not {"_foreach_sub_", "_foreach_add_"} & set(alone.elements)
    swap_in(shards)
    shards.meet(1)
    swap_in(shards)
    with Passes() as passes:
        shards.meet(2)
    counts = passes.over(ELEMENTS)
    assert (counts["_foreach_sub_"], counts["_foreach_add_"], counts["_foreach_copy_"]) == (1.0, 1.0, 1.0)
    assert passes.allocated < 1024
    assert all((total == -1).all() for total in sums)


def test_a_swap_of_every_block(shards_of: Callable[..., Shards], tensors: list[Tensor], swap: Callable[..., None]) -> None:
    a, b = shards_of(*tensors, block_bytes=BLOCK), shards_of(*(2 * t for t in tensors), block_bytes=BLOCK)
    passes = counted(lambda: swap(a, b, RAW))
    mixing = {name: count for name, count in passes.over(ELEMENTS).items() if name != "zeros"}
    assert mixing == {"dot": 3.0, "copy_": 2.0, "sub": 1.0, "mul_": 1.0, "add_": 1.0, "sub_": 1.0}


def test_a_synchronous_round_with_one_neighbour(shards_of: Callable[..., Shards], tensors: list[Tensor]) -> None:
    shards = shards_of(*tensors, block_bytes=BLOCK, live=False)
    theirs = torch.zeros(BLOCK // 4).view(torch.uint8)

    def round() -> None:
        published = shards.publish(1)
        for block in shards.blocks:
            shards.combine(block.index, 0.5, [Part(0.5, theirs, RAW, 1)], published)
        shards.flush()

    passes = counted(round)
    expected = {"dot": 2.0, "copy_": 1.0, "mul": 2.0, "sub": 1.0, "add_": 1.0, "_foreach_copy_": 1.0}
    assert passes.over(ELEMENTS) == {**expected, **GATHER[len(tensors)]}
    assert passes.allocated < 1024
