"""The shared state as mass: what a node holds is a numerator and a weight per block, and its model is their quotient.

Kempe et al., "Gossip-Based Computation of Aggregate Information" (2003). Whatever is given away leaves both, whatever is
taken joins both, so their sums over all nodes and all that is under way move by local updates only. Counters and integers
stay local.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from optim.codec import Codec
from optim.kinds import Kind
from p2p.state.layout import Block
from p2p.state.mixing import squared_norm
from p2p.state.outcome import Difference
from p2p.state.shards import Shards
from p2p.state.sources import Source


class Mass(Shards):
    """Shards whose copy holds numerators; see `Shards` for layout, joiners and donors (who see quotients)."""

    def __init__(self, sources: Sequence[Source], *, block_bytes: int, taken: bool = True) -> None:
        """Every block begins with weight 1."""
        super().__init__(sources, block_bytes=block_bytes, live=True, taken=taken)
        self.weights = [1.0] * len(self.blocks)

    @staticmethod
    def moves(block: Block) -> bool:
        """Whether blocks of this kind are mass."""
        return block.kind.linear or block.kind is Kind.NONNEGATIVE

    # --- the trainer's thread ------------------------------------------------------------------------------

    def absorb(self, *, weighted: bool) -> tuple[str, ...]:
        """Local updates since `write` join the numerators; names the tensors that aren't finite, whose blocks keep apart.

        A parameter's change counts as it is (Assran et al., 2019), or, `weighted`, as much as the node weighs at the moment:
        while much of the mass is under way, the model would else leap by a multiple of what the optimizer wanted.
        """
        self._flat.refresh()
        names = list[str]()
        for block in self.blocks:
            with self._locks[block.index]:
                names += self._absorb(block, weighted)
        return tuple(dict.fromkeys(names))

    def _absorb(self, block: Block, weighted: bool) -> tuple[str, ...]:
        assert self._last is not None, "mass is live"
        fresh, copy, last = self._flat.read(block), self._copy.piece(block), self._last.piece(block)
        new, weight = self._widen(0, fresh, copy), self.weights[block.index]
        if not self.moves(block):
            copy.copy_(new)
            return ()
        if math.isnan(squared_norm(new)):
            return self._nonfinite(block, new)
        if weight == 1.0 and new is fresh and not self._touched[block.index]:
            copy.copy_(fresh)  # exactly, where nobody else has a part in it
        else:
            change = torch.sub(new, self._widen(1, last, copy), out=self._scratch(2, copy))
            copy.add_(change, alpha=1.0 if block.kind is Kind.PARAMETER and not weighted else weight)
        last.copy_(fresh)
        return ()

    def write(self) -> None:
        """The model becomes numerator over weight where something was taken; without weight it stays as it is."""
        assert self._last is not None, "mass is live"
        for block in self.blocks:
            with self._locks[block.index]:
                weight = self.weights[block.index]
                if self._touched[block.index] and weight > 0:
                    mixed = torch.div(self._copy.piece(block), weight, out=self._mixed.piece(block))
                    self._flat.write(block, self._mixed.segments(block))
                    self._last.piece(block).copy_(mixed)
                    self._touched[block.index] = False
        self._flat.flush()

    def retake(self) -> None:
        """See `Shards.retake`: with weight 1 again."""
        super().retake()
        self.weights = [1.0] * len(self.blocks)

    def _agree(self, block: Block) -> None:
        assert self._last is not None, "mass is live"
        self._last.piece(block).copy_(self._copy.piece(block))

    # --- any thread ----------------------------------------------------------------------------------------

    def set_block(self, index: int, data: Tensor, codec: Codec, step: int) -> None:
        """See `Shards.set_block`: what a donor sends is a quotient, so it has weight 1."""
        super().set_block(index, data, codec, step)
        self.weights[index] = 1.0

    def give(self, index: int, share: float, codec: Codec, out: Tensor) -> float:
        """Take a share of numerator and weight away, the one encoded to `out` (uint8), the other returned."""
        with self._locks[index]:
            copy = self._copy.piece(self.blocks[index])
            codec.encode(torch.mul(copy, share, out=self._scratch(0, copy)), out)
            copy.sub_(codec.decode(out, self._scratch(1, copy)))
            weight = self.weights[index] * share
            self.weights[index] -= weight
            return weight

    def take(self, index: int, data: Tensor, codec: Codec, weight: float) -> Difference:
        """Add what was given; nothing if it isn't finite. The difference is that of the quotients, where there are two."""
        block = self.blocks[index]
        with self._locks[index]:
            copy, own = self._copy.piece(block), self.weights[index]
            given = codec.decode(data, self._scratch(0, copy))
            if math.isnan(squared_norm(given)):
                return Difference(0.0, self._nonfinite(block, given))
            apart = torch.div(given, weight, out=self._scratch(1, copy))
            squared = squared_norm(apart.sub_(copy, alpha=1 / own)) if own > 0 else 0.0
            copy.add_(given)
            self.weights[index] += weight
            self._touched[index] = True
            return Difference(squared if squared >= 0 else 0.0)

    def read(self, block: Block, out: Tensor) -> None:
        """The present quotient of a block, in the copy's dtype."""
        with self._locks[block.index]:
            weight = self.weights[block.index]
            out.copy_(self._copy.piece(block))
            if self.moves(block) and weight > 0:
                out.div_(weight)
