"""The shared state as flat blocks, and the only code that writes mixed values to the model.

Asynchronous nodes (`live`) have a gossip copy, open to swaps at any time from the agent's thread, and the value on which
copy and model last agreed; `meet` brings the three together once a step. Synchronous ones publish their state to one of
two sets in turn, and combine what the neighbours published. One block's lock is held at a time, and never across a wait.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from optim.codec import Codec, Projection, decode_over, fits
from optim.kinds import Kind
from optim.robust import Rule
from p2p.errors import StateError, WireError
from p2p.state.flat import Flat
from p2p.state.layout import Block, lay_out
from p2p.state.mixing import blend, merge, squared_norm
from p2p.state.outcome import UNLIMITED, Difference, Limit, Meeting
from p2p.state.schema import Entry, Schema
from p2p.state.snapshot import Snapshot
from p2p.state.sources import Source
from p2p.state.store import Scratch, Store, Window, columns, cut


class Part(NamedTuple):
    """A neighbour's block in a synchronous round."""

    weight: float
    data: Tensor  # uint8
    codec: Codec
    step: int
    limit: Limit = UNLIMITED


@dataclass(frozen=True, slots=True)
class Published:
    """The state as published for one round; valid until the next round but one is published."""

    number: int
    step: int
    nonfinite: tuple[str, ...]
    store: Store

    def payload(self, first: Block, last: Block) -> Tensor:
        """The raw bytes of consecutive blocks of one run, without a copy."""
        return self.store.span(first, last)


class Shards:
    """All shared tensors of one node. Methods say on whose thread they may run."""

    def __init__(self, sources: Sequence[Source], *, block_bytes: int, live: bool, taken: bool = True) -> None:
        """Lays out the sources and, if `taken`, takes their present values: else others' are to come.

        Raises `ConfigError` for an odd `block_bytes`.
        """
        self.sources = tuple(sources)
        entries = [Entry(s.name, s.kind, s.shape, s.dtype, _together(s)) for s in sources]
        self.schema = Schema(entries, block_bytes)
        self.runs, self.blocks = lay_out(entries, block_bytes)
        self.nbytes = sum(block.nbytes for block in self.blocks)
        dtypes, wide = [run.dtype for run in self.runs], [run.copy_dtype for run in self.runs]
        self._flat = Flat(self.sources, self.runs, self.blocks)
        self._mixed = Window(self.runs, self.blocks, wide)  # what it shall hold, in synchronous rounds
        self._last = Store(self.runs, self.blocks, dtypes) if live else None
        self._sets = [Store(self.runs, self.blocks, wide) for _ in range(1 if live else 2)]  # gossip copy, or published
        self._copy = self._sets[0]
        self._rounds = 0
        self._locks = [threading.Lock() for _ in self.blocks]
        self._touched = [False] * len(self.blocks)
        self._agreed = [False] * len(self.blocks)  # the copy still is what model and copy agreed on, and `last` not written
        self._stamps = [0] * len(self.blocks)  # of integer blocks: their owner's step
        self._missing = set(range(len(self.blocks)))  # not yet received by a joiner
        self._norms = [0.0] * len(self.blocks)  # as last staged
        self._scratch = Scratch()
        if taken:
            self._take()

    def sizes(self, first: int, count: int, codec: Codec) -> list[int]:
        """Bytes of each block's piece in a message. Raises `WireError` where no such message can be."""
        blocks = self.blocks[first : first + count] if first >= 0 else ()
        if not 0 < count == len(blocks) or any(b.run != blocks[0].run for b in blocks):
            raise WireError("blocks", f"{count} from {first} are not consecutive blocks of one run")
        if not fits(codec, blocks[0].kind, blocks[0].dtype):
            raise WireError("codec", f"{codec.name} would spoil {blocks[0].kind.name.lower()} values")
        return [codec.nbytes(block.elements, block.dtype) for block in blocks]

    def split(self, data: Tensor, first: int, count: int, codec: Codec) -> Sequence[Tensor]:
        """A message's payload (uint8), cut into its blocks' pieces. Raises `WireError` where the size is another."""
        sizes = self.sizes(first, count, codec)
        if data.numel() != sum(sizes):
            raise WireError("size", f"{data.numel()} bytes for blocks of {sum(sizes)}")
        return torch.split_with_sizes(data, sizes) if count > 1 else (data,)

    # --- asynchronous: the trainer's thread ------------------------------------------------------------------

    def meet(self, step: int) -> Meeting:
        """The local update since the last meet joins the gossip copy, what gossip changed joins the model.

        A block that gossip left alone is not written. Values that aren't finite stay out of the copy: their block keeps
        apart, and is named, until the model is finite again.
        """
        self._flat.refresh()
        touched, nonfinite = 0, list[str]()
        for block in self.blocks:
            with self._locks[block.index]:
                touched += self._touched[block.index]
                nonfinite += self._meet(block, step)
        self._flat.flush()
        return Meeting(touched, tuple(dict.fromkeys(nonfinite)))

    def _meet(self, block: Block, step: int) -> tuple[str, ...]:
        assert self._last is not None, "meet is for live shards"
        copy, last, touched = self._copy.piece(block), self._last.piece(block), self._touched[block.index]
        fresh = self._flat.read(block)
        if not touched and block.kind is not Kind.NEWEST and last.dtype == copy.dtype:
            return self._follow(block, fresh, copy)
        self._part(block)
        if block.kind is Kind.NEWEST:
            self._meet_newest(block, fresh, copy, last, step)
            return ()
        new = self._widen(0, fresh, copy)
        if math.isnan(squared_norm(new)):
            return self._nonfinite(block, new)
        pieces = (copy, new, self._widen(1, last, copy), self._scratch(2, copy), self._scratch(3, copy))
        for kind, (value, theirs, old, change, ratio) in columns(block, *pieces):
            merge(kind, value, theirs, old, (change, ratio))
        if touched:
            self._flat.write(block, self._copy.segments(block))
        last.copy_(copy if touched else fresh)
        self._touched[block.index] = False
        return ()

    def _follow(self, block: Block, fresh: Tensor, copy: Tensor) -> tuple[str, ...]:
        """Gossip left the block alone, so the copy takes the model's value, where that is finite."""
        if math.isnan(squared_norm(fresh)):
            return self._nonfinite(block, fresh)
        copy.copy_(fresh)
        self._agree(block)
        return ()

    def _meet_newest(self, block: Block, fresh: Tensor, copy: Tensor, last: Tensor, step: int) -> None:
        changed = not torch.equal(fresh, last)
        if changed and step >= self._stamps[block.index]:
            copy.copy_(fresh)
            self._stamps[block.index] = step
        elif changed or self._touched[block.index]:
            self._flat.write(block, self._copy.segments(block))
        last.copy_(copy)
        self._touched[block.index] = False

    # --- asynchronous: any thread ----------------------------------------------------------------------------

    def stage(self, first: int, count: int, codec: Codec, out: Tensor, bases: Sequence[Tensor] = ()) -> tuple[str, ...]:
        """Encode consecutive blocks of the gossip copy to `out` (uint8), to be sent; heads of parts are there already.

        Where there are `bases`, one per block, what is encoded is the change from them. Returns the names of tensors that
        aren't finite; if there is one, nothing may be sent.
        """
        nonfinite = list[str]()
        pieces = self.split(out, first, count, codec)
        for k, (block, piece) in enumerate(zip(self.blocks[first : first + count], pieces, strict=True)):
            with self._locks[block.index]:
                value = self._copy.piece(block)
                squared = squared_norm(value)
                if math.isnan(squared):
                    nonfinite += self._nonfinite(block, value)
                else:
                    self._norms[block.index] = squared**0.5
                    codec.encode(torch.sub(value, bases[k], out=self._scratch(0, value)) if bases else value, piece)
        return tuple(nonfinite)

    def norm(self, index: int) -> float:
        """Any thread: of the block as it was last staged."""
        return self._norms[index]

    def answer(
        self,
        index: int,
        data: Tensor,
        codec: Codec,
        weight: float,
        out: Tensor,
        step: int,
        limits: Sequence[Limit] = (),
        share: float = 1.0,
        by: Codec | None = None,
    ) -> Difference:
        """Mix a partner's block (of its step `step`) into the gossip copy, and write to `out` what settles it there.

        Linear kinds: d = (y - s) * weight, encoded once (`by` another codec, where there is one); its decoded
        form is added here and will be subtracted there, and beyond one of the `limits` (this node's, and its partner's) it
        counts less on both sides alike. Others: the own value before mixing. This node takes a `share` of the change.
        """
        block = self.blocks[index]
        with self._locks[index]:
            self._part(block)
            own = self._copy.piece(block)
            theirs_room = self._scratch(0, own)
            theirs = decode_over(codec, data, theirs_room, own)
            change = torch.sub(theirs, own, out=self._scratch(1, own)) if block.kind is not Kind.NEWEST else own
            squared = squared_norm(change)
            if math.isnan(squared):
                return Difference(0.0, self._nonfinite(block, change))
            scale = min((limit.scale(squared, own) for limit in limits), default=1.0)
            reply = by or codec
            if isinstance(reply, Projection):
                reply.follow(data, out, block.elements)
            size = out.numel() // len(block.columns)
            for i, (kind, (s, y, d, room)) in enumerate(columns(block, own, theirs, change, theirs_room)):
                data = out[i * size : (i + 1) * size]
                if kind.linear:
                    reply.encode(d.mul_(weight * scale), data)
                    s.add_(decode_over(reply, data, room), alpha=share)
                else:
                    reply.encode(s, data)
                    self._join(block, kind, s, y, weight * scale * share, step)
            self._touched[index] = True
            return Difference(squared, clipped=scale < 1)

    def settle(
        self, index: int, data: Tensor, codec: Codec, weight: float, step: int, limit: Limit = UNLIMITED, share: float = 1.0
    ) -> Difference:
        """Join a `share` of the answer of a partner (at its step `step`) to an own swap of weight `weight`.

        Beyond the limit, which the partner was told and should have kept, a change counts less: the mean moves.
        """
        block = self.blocks[index]
        with self._locks[index]:
            self._part(block)
            own = self._copy.piece(block)
            theirs = decode_over(codec, data, self._scratch(0, own))
            norm = squared_norm(theirs)
            if math.isnan(norm):
                return Difference(0.0, self._nonfinite(block, theirs))
            squared, clipped = 0.0, False
            for kind, (s, y) in columns(block, own, theirs):
                if kind.linear:  # it is a change, most often all that came
                    apart = (norm if y is theirs else squared_norm(y)) / (weight * weight)
                else:
                    apart = self._apart(kind, s, y)
                scale = limit.scale(apart, own)
                squared += apart
                if kind.linear:
                    s.sub_(y, alpha=scale * share)
                    clipped = clipped or scale < 1
                else:
                    self._join(block, kind, s, y, weight * scale * share, step)
            self._touched[index] = True
            return Difference(squared, clipped=clipped)

    def _apart(self, kind: Kind, own: Tensor, theirs: Tensor) -> float:
        return squared_norm(torch.sub(theirs, own, out=self._scratch(1, own))) if kind is not Kind.NEWEST else 0.0

    def _join(self, block: Block, kind: Kind, own: Tensor, theirs: Tensor, weight: float, step: int) -> None:
        if kind is not Kind.NEWEST:
            blend(kind, own, theirs, weight)
        elif step > self._stamps[block.index]:
            own.copy_(theirs)
            self._stamps[block.index] = step

    # --- joiners and donors ----------------------------------------------------------------------------------

    def set_block(self, index: int, data: Tensor, codec: Codec, step: int) -> None:
        """Any thread: a donor's block (of its step `step`) arrived. The model is not written before `apply`."""
        block = self.blocks[index]
        with self._locks[index]:
            own = self._copy.piece(block)
            own.copy_(codec.decode(data, self._scratch(0, own)))
            self._stamps[index] = step
        self._missing.discard(index)

    def apply(self) -> None:
        """The trainer's thread: all blocks that arrived become the model's and the optimizers' state.

        Whole or not at all: raises `StateError`, and writes nothing, where a block is missing or isn't finite.
        """
        if self._missing:
            raise StateError(f"{len(self._missing)} of {len(self.blocks)} blocks of the state have not arrived")
        spoilt = [name for b in self.blocks for name in self._nonfinite(b, self._copy.piece(b))]
        if spoilt:
            raise StateError(f"the donor's state is not finite: {', '.join(spoilt[:5])}")
        self._flat.refresh()
        for block in self.blocks:
            with self._locks[block.index]:
                self._flat.write(block, self._copy.segments(block))
                self._agree(block)
                self._touched[block.index] = False
        self._flat.flush()

    def _agree(self, block: Block) -> None:
        """Model and copy hold one value; to write it to `last`, into fresh pages, can wait until one of them changes."""
        self._agreed[block.index] = True

    def _part(self, block: Block) -> None:
        """Model or copy is about to change; under the block's lock."""
        if self._agreed[block.index] and self._last is not None:
            self._last.piece(block).copy_(self._copy.piece(block))
            self._agreed[block.index] = False

    def snapshot(self) -> Snapshot:
        """Any thread: a copy of the gossip copy (or of what was last published), still to be filled by `advance`."""
        return Snapshot(self.blocks, Store(self.runs, self.blocks, [run.copy_dtype for run in self.runs]), self.read)

    def read(self, block: Block, out: Tensor) -> None:
        """Any thread: the present copy of a block, in the copy's dtype."""
        with self._locks[block.index]:
            out.copy_(self._copy.piece(block))

    # --- synchronous rounds: the trainer's thread ------------------------------------------------------------

    def publish(self, step: int) -> Published:
        """Copy the state to the older of the two sets; what is not finite is named, and must not be sent."""
        self._rounds += 1
        nonfinite = self._take()
        return Published(self._rounds, step, nonfinite, self._copy)

    def combine(
        self, index: int, own_weight: float, parts: Sequence[Part], published: Published, rule: Rule | None = None, bad: int = 0
    ) -> tuple[Difference, ...]:
        """The model's block becomes own_weight * s + sum of weight * y, in the order given; then call `flush`.

        The weight of a part that isn't finite goes to the own value. Counters take the largest, integers the newest. A
        `rule` that bears `bad` wrong parts stands in for the sum.
        """
        block = self.blocks[index]
        own, mixed = self._of_round(published, block), self._mixed.piece(block)
        if rule is not None and block.kind not in (Kind.COUNTER, Kind.NEWEST):
            return self._combine_by(rule, bad, block, own_weight, parts, own)
        mixed.copy_(own) if block.kind in (Kind.COUNTER, Kind.NEWEST) else torch.mul(own, own_weight, out=mixed)
        newest, differences = published.step, list[Difference]()
        for part in parts:
            theirs, difference = self._compare(block, own, part)
            differences.append(difference)
            if block.kind is Kind.COUNTER:
                blend(block.kind, mixed, theirs if difference.finite else own, 0)
            elif block.kind is not Kind.NEWEST:
                mixed.add_(torch.mul(theirs if difference.finite else own, part.weight, out=self._scratch(1, own)))
            elif part.step > newest:
                newest = part.step
                mixed.copy_(theirs)
        self._write_mixed(block)
        return tuple(differences)

    def _combine_by(
        self, rule: Rule, bad: int, block: Block, own_weight: float, parts: Sequence[Part], own: Tensor
    ) -> tuple[Difference, ...]:
        compared = [self._compare(block, own, part, 2 + i) for i, part in enumerate(parts)]
        there = [(part.weight, value) for part, (value, found) in zip(parts, compared, strict=True) if found.finite]
        missing = sum(part.weight for part in parts) - sum(weight for weight, _ in there)
        rule(own, own_weight + missing, there, bad, self._mixed.piece(block))
        self._write_mixed(block)
        return tuple(found for _, found in compared)

    def _write_mixed(self, block: Block) -> None:
        for kind, (value,) in columns(block, self._mixed.piece(block)):
            if kind is Kind.NONNEGATIVE:
                value.clamp_(min=0)  # whatever a neighbour sent
        self._flat.write(block, self._mixed.segments(block))

    def late(self, index: int, part: Part, published: Published) -> Difference:
        """A part of an earlier round: the change that it would have made then joins the model now."""
        block = self.blocks[index]
        self._flat.refresh(block)
        own, mixed = self._of_round(published, block), self._mixed.piece(block)
        theirs, difference = self._compare(block, own, part)
        if not difference.finite:
            return difference
        mixed.copy_(self._flat.read(block))
        if block.kind is Kind.NEWEST:
            mixed.copy_(theirs if part.step > published.step else mixed)
        else:
            pieces = (mixed, self._scratch(1, own).copy_(own), own, theirs, self._scratch(2, own), self._scratch(3, own))
            for kind, (value, then, old, y, change, ratio) in columns(block, *pieces):
                blend(kind, then, y, part.weight)
                merge(kind, value, then, old, (change, ratio))
        self._flat.write(block, self._mixed.segments(block))
        self._flat.flush()
        return difference

    def flush(self) -> None:
        """After the last `combine` of a round: write what had to pass through a stand-in (strided or CUDA tensors)."""
        self._flat.flush()

    def _of_round(self, published: Published, block: Block) -> Tensor:
        if published.number < self._rounds - 1:
            raise StateError(
                f"round {published.number} was published {self._rounds - published.number} rounds ago; two are kept"
            )
        return published.store.piece(block)

    def _compare(self, block: Block, own: Tensor, part: Part, room: int = 0) -> tuple[Tensor, Difference]:
        """What the part holds, in this scratch piece (any but 1), and how far it is from the own value."""
        theirs = part.codec.decode(part.data, self._scratch(room, own))
        if block.kind is Kind.NEWEST:
            return theirs, Difference(0.0)
        apart = torch.sub(theirs, own, out=self._scratch(1, own))
        squared = squared_norm(apart)
        if math.isnan(squared):
            return theirs, Difference(0.0, self._nonfinite(block, apart))
        scale = part.limit.scale(squared, own)
        if scale < 1:
            torch.add(own, apart, alpha=scale, out=theirs)
        return theirs, Difference(squared, clipped=scale < 1)

    # --- the model -------------------------------------------------------------------------------------------

    def _take(self) -> tuple[str, ...]:
        """Copy the model's state to the gossip copy, or to the older of the published sets; names what isn't finite."""
        self._flat.refresh()
        target, nonfinite = self._sets[self._rounds % len(self._sets)], list[str]()
        for block in self.blocks:
            fresh, copy = self._flat.read(block), target.piece(block)
            with self._locks[block.index]:
                copy.copy_(fresh)
            if self._last is not None:
                self._last.piece(block).copy_(fresh)
            nonfinite += self._nonfinite(block, copy)
        self._copy = target
        return tuple(dict.fromkeys(nonfinite))

    def retake(self) -> None:
        """The trainer's thread: the model was replaced, by a checkpoint; what is published, or swapped, is of it."""
        self._take()

    def model(self, blocks: Sequence[Block]) -> list[Tensor]:
        """The trainer's thread: new tensors with what the model holds, in the copy's dtype."""
        self._flat.refresh()
        return [self._flat.read(block).to(block.dtype, copy=True) for block in blocks]

    def _widen(self, number: int, value: Tensor, like: Tensor) -> Tensor:
        """The value in the copy's dtype."""
        return value if value.dtype == like.dtype else self._scratch(number, like).copy_(value)

    def _nonfinite(self, block: Block, value: Tensor) -> tuple[str, ...]:
        """The tensors of the block that have a nan or infinity in `value`."""
        if not math.isnan(squared_norm(value)):
            return ()
        stretches = zip(block.segments, cut(block, value), strict=True)
        return tuple(self.sources[s.tensor].name for s, stretch in stretches if not torch.isfinite(stretch).all())


def _together(source: Source) -> str:
    """An optimizer's moments of one parameter travel together."""
    return source.name.rpartition(".")[0] if not source.in_model and source.kind in (Kind.SIGNED, Kind.NONNEGATIVE) else ""
