"""Flat, row-major access to the model's and the optimizers' tensors, whatever their strides or device.

A contiguous CPU tensor is read and written in place. Any other one passes through a contiguous host tensor that is made
once and reused: read by `refresh`, written back by `flush`. CUDA tensors move on a stream of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from p2p.errors import StateError
from p2p.state.layout import Block
from p2p.state.sources import Source


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


class Flat:
    """The tensors behind the sources, cut into the segments of each block. For the trainer's thread."""

    def __init__(self, sources: Sequence[Source], blocks: Sequence[Block]) -> None:
        self._sources = sources
        self._blocks = blocks
        self._reads = [source.read for source in sources]
        self._places = [_Place() for _ in sources]
        self._views: list[list[Tensor | None] | None] = [None] * len(blocks)
        self._wholes: list[list[Tensor] | None] = [None] * len(blocks)
        self._of: list[list[int]] = [[] for _ in sources]
        for block in blocks:
            for segment in block.segments:
                self._of[segment.tensor].append(block.index)
        self._all = range(len(self._places))
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def refresh(self, block: Block | None = None) -> None:
        """Look where the tensors (of one block) are now, and read those that pass through a stand-in."""
        which = self._all if block is None else [segment.tensor for segment in block.segments]
        for i in which:
            tensor, place = self._reads[i](), self._places[i]
            if tensor is not place.tensor or (
                tensor is not None and (tensor.data_ptr() != place.pointer or tensor.stride() != place.stride)
            ):
                self._bind(i, tensor)
        self._load([self._places[i] for i in which])

    def views(self, block: Block) -> list[Tensor | None]:
        """The block's segments of the tensors, 1-d; None where optimizer state doesn't exist yet."""
        views = self._views[block.index]
        if views is None:
            flats = [self._places[segment.tensor].flat for segment in block.segments]
            views = [None if f is None else f[s.start : s.stop] for f, s in zip(flats, block.segments, strict=True)]
            self._views[block.index] = views
        return views

    def whole(self, block: Block) -> list[Tensor] | None:
        """The block's segments if all of the tensors exist, else None."""
        whole = self._wholes[block.index]
        if whole is None:
            views = [view for view in self.views(block) if view is not None]
            whole = self._wholes[block.index] = views if len(views) == len(block.segments) else None
        return whole

    def create(self, block: Block, which: int) -> None:
        """Make the optimizer state behind the block's segment exist."""
        i = block.segments[which].tensor
        self._bind(i, self._sources[i].create())

    def wrote(self, block: Block) -> None:
        """The block's segments were written: what went to a stand-in is due to its tensor."""
        for segment in block.segments:
            self._places[segment.tensor].dirty = True

    def flush(self) -> None:
        """Write to the tensors what went to their stand-ins."""
        self._move([(p.through, p.tensor) for p in self._places if p.dirty and p.through is not None and p.tensor is not None])
        for place in self._places:
            place.dirty = False

    def _bind(self, i: int, tensor: Tensor | None) -> None:
        place, source = self._places[i], self._sources[i]
        for index in self._of[i]:
            self._views[index] = self._wholes[index] = None
        place.tensor, place.dirty = tensor, False
        if tensor is None:
            place.flat = place.through = None
            return
        if tuple(tensor.shape) != source.shape or tensor.dtype != source.dtype:
            raise StateError(
                f"{source.name} is now {tensor.dtype} {tuple(tensor.shape)}; "
                f"the swarm shares it as {source.dtype} {source.shape}, fixed when this node joined"
            )
        place.pointer, place.stride = tensor.data_ptr(), tensor.stride()
        if tensor.is_contiguous() and tensor.device.type == "cpu":
            place.through, place.flat = None, tensor.detach().view(-1)
        else:
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
