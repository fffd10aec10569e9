"""Replicas: what a partner holds of this node's blocks, known at both ends, so that only what changed since has to cross.

CHOCO (Koloskova et al., "Decentralized Stochastic Optimization and Gossip Algorithms with Compressed Communication", 2019), for
swaps. The initiator, at y, sends q = C(y - r); both ends then take r + q for y. The responder, at s, adds a = C(w (r + q - s))
and answers it; the initiator subtracts it; both keep r + q - a. The mean does not move, whatever C loses. That stays in y - r
and in r - s, and comes with later ones: differences are their own error memory, and another one would count it twice.

A request names its replica by checksum, so ends that differ, for whatever reason, find out at once, and found it anew by
values. Memory: on a link whose codec is for changes, the blocks once for each direction in which swaps are asked.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from optim.codec import INT8, Codec, Form, writable
from p2p.agent.swap import Opened
from p2p.net import wire
from p2p.net.messages import Answer
from p2p.state.layout import Block

FOUNDING = INT8
"""By this codec a replica begins: that swap is one of values, and mixes like any."""


def digest(replica: Tensor) -> int:
    """Of its bytes; never 0, which founds one."""
    return wire.checksum(writable(replica)) or 1


class Store:
    """Blocks by partner; beyond `room` bytes nothing new is kept."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._held: dict[str, dict[int, Tensor]] = {}
        self.nbytes = 0

    def get(self, partner: str, index: int) -> Tensor | None:
        return self._held.get(partner, {}).get(index)

    def put(self, partner: str, index: int, value: Tensor) -> None:
        self.drop(partner, index)
        if self.nbytes + value.nbytes <= self._room:
            self._held.setdefault(partner, {})[index] = value
            self.nbytes += value.nbytes

    def drop(self, partner: str, index: int) -> None:
        gone = self._held.get(partner, {}).pop(index, None)
        self.nbytes -= gone.nbytes if gone is not None else 0

    def keep(self, members: Container[str]) -> None:
        """Forget those who are gone."""
        self._held = {partner: held for partner, held in self._held.items() if partner in members}
        self.nbytes = sum(value.nbytes for held in self._held.values() for value in held.values())


class Open(NamedTuple):
    """What an own request said of one block."""

    codec: Codec
    piece: Tensor


class Told:
    """The initiator's side: own blocks as its partners know them."""

    def __init__(self, room: int) -> None:
        self.store = Store(room)
        self._open: dict[tuple[str, int], Open] = {}

    def keep(self, members: Container[str]) -> None:
        """Forget those who are gone."""
        self.store.keep(members)
        self._open = {key: asked for key, asked in self._open.items() if key[0] in members}

    def free(self, partner: str, index: int) -> bool:
        """Whether it is known what the partner holds: no request of this block to it is unanswered."""
        return (partner, index) not in self._open

    def bases(self, partner: str, blocks: Iterable[Block]) -> list[Tensor]:
        """What the partner holds of the blocks; nothing unless it holds them all."""
        found = [self.store.get(partner, block.index) for block in blocks]
        return [base for base in found if base is not None] if all(base is not None for base in found) else []

    def asked(self, partner: str, codec: Codec, pieces: Iterable[tuple[int, Tensor]]) -> None:
        """A request left with these pieces, which are copied; their blocks were `free`."""
        for index, piece in pieces:
            self._open[partner, index] = Open(codec, piece.clone())

    def declined(self, partner: str, opened: Opened, answer: Answer) -> None:
        """What was not mixed has the replica that it had; what is unknown to the partner has none."""
        for bit in range(opened.count) if self._open else ():
            index, unknown = opened.first + bit, answer.unknown >> bit & 1
            if unknown or not answer.accepted >> bit & 1:
                self._open.pop((partner, index), None)
            if unknown:
                self.store.drop(partner, index)

    def mixed(self, partner: str, block: Block, codec: Codec, answer: Tensor, share: float) -> None:
        """The block was mixed; this node takes a `share` of the answer."""
        asked = self._open.pop((partner, block.index), None)
        if asked is not None:
            replica = followed(self.store.get(partner, block.index), block, asked.codec, asked.piece)
            self.store.put(partner, block.index, less(replica, codec, answer, share))


class Heard:
    """The responder's side: its partners' blocks as they told them."""

    def __init__(self, room: int) -> None:
        self.store = Store(room)

    def theirs(self, partner: str, block: Block, codec: Codec, piece: Tensor, base: int) -> Tensor | None:
        """The block as the piece of a request tells it; None where that is a change to what is not held."""
        replica = self.store.get(partner, block.index) if codec.form is Form.CHANGES else None
        if codec.form is Form.CHANGES and (replica is None or digest(replica) != base):
            self.store.drop(partner, block.index)
            return None
        return followed(replica, block, codec, piece)

    def mixed(self, partner: str, block: Block, theirs: Tensor, codec: Codec, answer: Tensor, share: float) -> bool:
        """The partner takes a `share` of the answer; whether there is room to remember that."""
        self.store.put(partner, block.index, less(theirs, codec, answer, share))
        return self.store.get(partner, block.index) is not None


def followed(replica: Tensor | None, block: Block, codec: Codec, piece: Tensor) -> Tensor:
    """The replica in place, with a change; or a new one, of values."""
    room = torch.empty(block.elements, dtype=block.dtype)
    told = codec.decode(piece, room)
    if replica is not None and codec.form is Form.CHANGES:
        return replica.add_(told)
    return told if told is room else room.copy_(told)  # raw values are the received memory itself


def less(replica: Tensor, codec: Codec, answer: Tensor, share: float) -> Tensor:
    """In place: what an answer takes away."""
    return replica.sub_(codec.decode(answer, torch.empty_like(replica)), alpha=share)


def named(codec: Codec, blocks: Sequence[Block], bases: Sequence[Tensor]) -> tuple[int, ...]:
    """For the header of a request."""
    return tuple(map(digest, bases)) if codec.form is Form.CHANGES else (0,) * len(blocks)
