"""Which blocks belong to which of the parts that an algorithm exchanges in turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod

from optim import Kind
from optim.parts import cut
from p2p.state.layout import Block
from p2p.state.sources import Source


def owners(sources: Sequence[Source], parts: int) -> dict[str, int]:
    """The part of each parameter, by name."""
    parameters = [source for source in sources if source.kind is Kind.PARAMETER]
    sizes = [prod(source.shape) for source in parameters]
    return dict(zip([source.name for source in parameters], cut(sizes, parts), strict=True))


def members(sources: Sequence[Source], blocks: Sequence[Block], parts: int, whole: bool) -> Sequence[Sequence[int]]:
    """The blocks of each part, ascending; `whole`: of whole tensors."""
    if parts == 1:
        return [range(len(blocks))]
    return _of_tensors(sources, blocks, parts) if whole else _of_blocks(blocks, parts)


def _of_blocks(blocks: Sequence[Block], parts: int) -> list[list[int]]:
    """Of every run about as much in each part."""
    found = list[list[int]]([] for _ in range(parts))
    for _, run in groupby(blocks, key=lambda block: block.run):
        held = list(run)
        for block, part in zip(held, cut([block.nbytes for block in held], parts), strict=True):
            found[part].append(block.index)
    return found


def _of_tensors(sources: Sequence[Source], blocks: Sequence[Block], parts: int) -> list[list[int]]:
    """All blocks that hold something of its parameters, or of no parameter. One in which two parts meet belongs to both."""
    part_of, found = owners(sources, parts), list[list[int]]([] for _ in range(parts))
    for block in blocks:
        held = {part_of.get(sources[segment.tensor].owner) for segment in block.segments}
        for part in range(parts):
            if part in held or None in held:
                found[part].append(block.index)
    return found
