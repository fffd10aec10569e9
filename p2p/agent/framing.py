"""Between blocks and payloads: what a shard's header says, and the pieces of a payload once it is found to be true."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from torch import Tensor

from optim.codec import RAW, Codec, Form, fits, make, readable
from p2p.agent.bundles import BLOCKS
from p2p.errors import WireError
from p2p.net import wire
from p2p.net.messages import Shard
from p2p.state.layout import Block
from p2p.state.schema import dtype_name
from topology import SpecError

EMPTY = Shard(0, 0, 0, RAW.name, "", 0, 0)
"""The shard of a message that carries none."""


class Framing:
    """Knows the grid of blocks."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks

    def nbytes(self, blocks: Sequence[Block], codec: Codec) -> int:
        """Bytes of these blocks on the wire."""
        return sum(codec.nbytes(b.elements, b.dtype) for b in blocks)

    def describe(self, first: int, count: int, sent: Sequence[Block], codec: Codec, payload: memoryview) -> Shard:
        """The header of blocks `first` .. `first + count - 1`, of which `sent` travel."""
        block = self.blocks[first]
        elements = sum(b.elements for b in sent)
        return Shard(first, count, block.kind, codec.name, dtype_name(block.dtype), elements, wire.checksum(payload))

    def range(self, first: int, count: int) -> list[Block]:
        """The blocks that a header names; WireError unless they exist, in one run."""
        if not 1 <= count <= BLOCKS or first < 0 or first + count > len(self.blocks):
            raise WireError("blocks", f"{count} blocks from {first} of {len(self.blocks)}; {BLOCKS} in a message at most")
        blocks = list(self.blocks[first : first + count])
        if blocks[0].run != blocks[-1].run:
            raise WireError("blocks", "blocks of several runs in one message")
        return blocks

    def pieces(
        self, shard: Shard, payload: memoryview | None, blocks: Sequence[Block], forms: Container[Form] = (Form.VALUES,)
    ) -> tuple[Codec, list[tuple[int, Tensor]]]:
        """The codec, and (block number, its bytes) for each of `blocks`, straight from the received memory.

        `forms` are those of codecs that may carry it. Raises WireError unless kind, dtype, codec, number of elements,
        length and checksum are all as they must be.
        """
        codec, head = _codec(shard.codec), blocks[0]
        if codec is None or codec.form not in forms or not fits(codec, head.kind, head.dtype):
            raise WireError("codec", f"{shard.codec!r} for {head.kind.name.lower()} {dtype_name(head.dtype)}")
        if shard.kind != head.kind or shard.dtype != dtype_name(head.dtype):
            raise WireError("blocks", f"kind {shard.kind} of {shard.dtype!r} for block {head.index}")
        nbytes = self.nbytes(blocks, codec)
        if payload is None or payload.nbytes != nbytes or shard.elements != sum(b.elements for b in blocks):
            raise WireError("payload", f"{payload.nbytes if payload else 0} bytes for blocks that take {nbytes}")
        wire.check_payload(shard, payload)
        return codec, list(self.cut(readable(payload), blocks, codec))

    def cut(self, data: Tensor, blocks: Sequence[Block], codec: Codec) -> Iterator[tuple[int, Tensor]]:
        """The bytes of these blocks, one after another, as (block number, its bytes)."""
        if len(blocks) == 1:
            yield blocks[0].index, data
            return
        at = 0
        for block in blocks:
            size = codec.nbytes(block.elements, block.dtype)
            yield block.index, data[at : at + size]
            at += size


def _codec(name: str) -> Codec | None:
    try:
        return make(name)
    except SpecError:
        return None
