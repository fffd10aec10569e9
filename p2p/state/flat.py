"""Flat, row-major access to the model's and the optimizers' tensors, whatever their strides or device.

A contiguous CPU tensor is read and written in place. Any other one passes through a contiguous host tensor that is made
once and reused: read by `refresh`, written back by `flush`. CUDA tensors move on a stream of their own. What is written to
a source that keeps count (`Source.brought`) joins its sum, as the tensor's dtype rounds it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from p2p.errors import StateError
from p2p.state.layout import Block, Run
from p2p.state.sources import Source
from p2p.state.store import Store, Window


class _Place:
    """What is known of one tensor since it was last looked at."""

    __slots__ = ("dirty", "flat", "pointer", "stride", "tensor", "through")

    def __init__(self) -> None:
        self.tensor: Tensor | None = None
        self.pointer = 0
        self.stride: tuple[int, ...] = ()
        self.flat: Tensor | None = None  # 1-d: the tensor's own memory, or its stand-in; None: the tensor doesn't exist yet
        self.through: Tensor | None = None  # the stand-in, of the tensor's shape
        self.dirty = False  # the stand-in has news for the tensor


class _Cut:
    """The tensors' stretches in one block, 1-d; good until one of them is another tensor."""

    __slots__ = ("counted", "sums", "through", "views", "whole")

    def __init__(self, block: Block, places: Sequence[_Place], sources: Sequence[Source]) -> None:
        self.views: list[Tensor | None] = []  # None where optimizer state doesn't exist yet
        self.through: list[_Place] = []  # whose stand-ins are among them
        self.sums: list[Tensor] = []  # what counts the changes of ...
        self.counted: list[Tensor] = []  # ... these
        for s in block.segments:
            place, brought = places[s.tensor], sources[s.tensor].brought
            view = place.flat[s.start : s.stop] if place.flat is not None else None
            self.views.append(view)
            if place.through is not None:
                self.through.append(place)
            elif view is not None and brought is not None:
                self.sums.append(brought.view(-1)[s.start : s.stop])
                self.counted.append(view)
        there = [view for view in self.views if view is not None]
        self.whole = there if len(there) == len(self.views) else None


class Flat:
    """The tensors behind the sources, block by block. For the trainer's thread."""

    def __init__(self, sources: Sequence[Source], runs: Sequence[Run], blocks: Sequence[Block]) -> None:
        self._sources = sources
        self._reads = [source.read for source in sources]
        self._places = [_Place() for _ in sources]
        self._standing: dict[int, None] = {}  # places with a stand-in
        self._room = Window(runs, blocks, [run.dtype for run in runs])
        self._cuts: list[_Cut | None] = [None] * len(blocks)
        self._of: list[list[int]] = [[] for _ in sources]
        for block in blocks:
            for segment in block.segments:
                self._of[segment.tensor].append(block.index)
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def refresh(self, block: Block | None = None) -> None:
        """Look where the tensors (of one block) are now, and read those that pass through a stand-in."""
        which = range(len(self._places)) if block is None else [segment.tensor for segment in block.segments]
        for i in which:
            tensor, place = self._reads[i](), self._places[i]
            if tensor is not place.tensor or (
                tensor is not None and (tensor.data_ptr() != place.pointer or tensor.stride() != place.stride)
            ):
                self._bind(i, tensor)
        if self._standing:
            self._load([self._places[i] for i in which])

    def read(self, block: Block) -> Tensor:
        """The block as the tensors hold it, in their dtype: their own memory where it is one stretch of one of them."""
        whole = self._cut(block).whole
        return whole[0] if whole is not None and len(whole) == 1 else self.gather(block, self._room)

    def gather(self, block: Block, to: Store | Window) -> Tensor:
        """Copy the block to a store of the tensors' dtype; optimizer state that doesn't exist yet counts as zeros."""
        cut, piece = self._cut(block), to.piece(block)
        if cut.whole is not None:
            return piece.copy_(cut.whole[0]) if len(cut.whole) == 1 else torch.cat(cut.whole, out=piece)
        for segment, view in zip(to.segments(block), cut.views, strict=True):
            segment.zero_() if view is None else segment.copy_(view)
        return piece

    def write(self, block: Block, values: list[Tensor]) -> None:
        """Make the tensors hold these segments of the block; then, or after the last block, call `flush`.

        Optimizer state that doesn't exist yet is made only for what isn't zero.
        """
        cut = self._cut(block)
        if cut.whole is None:
            cut = self._create(block, cut, values)
        if cut.sums:
            torch._foreach_sub_(cut.sums, cut.counted)
        if cut.whole is not None:
            torch._foreach_copy_(cut.whole, values)
        else:
            for view, value in zip(cut.views, values, strict=True):
                if view is not None:
                    view.copy_(value)
        if cut.sums:
            torch._foreach_add_(cut.sums, cut.counted)
        for place in cut.through:
            place.dirty = True

    def flush(self) -> None:
        """Write to the tensors what went to their stand-ins."""
        dirty = [i for i in self._standing if self._places[i].dirty]
        if dirty:
            self._flush(dirty)

    def _flush(self, dirty: Sequence[int]) -> None:
        places = [self._places[i] for i in dirty]
        counts = [(self._sources[i].brought, self._places[i].tensor) for i in dirty]
        counted = [(total, tensor) for total, tensor in counts if total is not None and tensor is not None]
        for total, tensor in counted:
            total.sub_(tensor)
        self._move([(p.through, p.tensor) for p in places if p.through is not None and p.tensor is not None])
        for total, tensor in counted:
            total.add_(tensor)
        for place in places:
            place.dirty = False

    def _cut(self, block: Block) -> _Cut:
        cut = self._cuts[block.index]
        if cut is None:
            cut = self._cuts[block.index] = _Cut(block, self._places, self._sources)
        return cut

    def _create(self, block: Block, cut: _Cut, values: Sequence[Tensor]) -> _Cut:
        """Optimizer state that isn't zero any more begins to exist."""
        for segment, view, value in zip(block.segments, cut.views, values, strict=True):
            if view is None and value.any() and self._places[segment.tensor].flat is None:
                self._bind(segment.tensor, self._sources[segment.tensor].create())
        return self._cut(block)

    def _bind(self, i: int, tensor: Tensor | None) -> None:
        place, source = self._places[i], self._sources[i]
        for index in self._of[i]:
            self._cuts[index] = None
        place.tensor, place.dirty, place.flat, place.through = tensor, False, None, None
        self._standing.pop(i, None)
        if tensor is not None:
            if tuple(tensor.shape) != source.shape or tensor.dtype != source.dtype:
                raise StateError(
                    f"{source.name} is now {tensor.dtype} {tuple(tensor.shape)}; "
                    f"the swarm shares it as {source.dtype} {source.shape}, fixed when this node joined"
                )
            self._find(i, tensor)

    def _find(self, i: int, tensor: Tensor) -> None:
        place, brought = self._places[i], self._sources[i].brought
        place.pointer, place.stride = tensor.data_ptr(), tensor.stride()
        if _plain(tensor) and (brought is None or _plain(brought)):
            place.flat = tensor.detach().view(-1)
        else:
            self._standing[i] = None
            place.through = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
            place.flat = place.through.view(-1)
            self._load([place])

    def _load(self, places: Sequence[_Place]) -> None:
        self._move([(p.tensor, p.through) for p in places if p.tensor is not None and p.through is not None])

    def _move(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Copy from the first to the second of each pair; what comes to the host is there when this returns."""
        if pairs:
            with torch.no_grad():
                self._copy_all(pairs)

    def _copy_all(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        for source, target in pairs:
            device = source.device if source.device.type == "cuda" else target.device
            if device.type == "cuda":
                self._move_beside(source, target, device)
            else:
                target.copy_(source)
        for stream in {self._streams[s.device] for s, _ in pairs if s.device.type == "cuda"}:
            stream.synchronize()

    def _move_beside(self, source: Tensor, target: Tensor, device: torch.device) -> None:
        """The copy on a stream of its own, after what the trainer has queued and before what it will queue."""
        stream = self._streams.setdefault(device, torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
        if target.device == device:
            torch.cuda.current_stream(device).wait_stream(stream)


def _plain(tensor: Tensor) -> bool:
    """Whether its memory is its elements, in order, on this side."""
    return tensor.is_contiguous() and tensor.device.type == "cpu"
