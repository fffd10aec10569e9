"""Which blocks belong to which of the parts that an algorithm exchanges in turn."""

from __future__ import annotations

from collections.abc import Sequence
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


def members(sources: Sequence[Source], blocks: Sequence[Block], parts: int) -> Sequence[Sequence[int]]:
    """The blocks of each part, ascending: all that hold something of its parameters, or of no parameter.

    A block in which two parts meet belongs to both.
    """
    if parts == 1:
        return [range(len(blocks))]
    part_of, found = owners(sources, parts), list[list[int]]([] for _ in range(parts))
    for block in blocks:
        held = {part_of.get(sources[segment.tensor].owner) for segment in block.segments}
        for part in range(parts):
            if part in held or None in held:
                found[part].append(block.index)
    return found
