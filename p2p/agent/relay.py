"""Rounds on a tree whose messages relay what came by the other edges in the round before."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from optim import Kind, RelaySum
from p2p.agent.post import Post
from p2p.agent.pusher import Blocks, Pusher, loads
from p2p.agent.rounds import Mixed, Plan, Pushed
from p2p.agent.seat import Seat
from p2p.config import Config
from p2p.report import Metrics
from p2p.state.layout import Block
from p2p.state.outcome import Difference
from p2p.state.shards import Shards
from p2p.state.store import Scratch, columns


@dataclass(frozen=True, slots=True)
class Heard:
    """What a neighbour sent in one round: the mean of all on its side of the edge, and their share in the swarm."""

    share: float
    blocks: Blocks


class RelayPusher(Pusher):
    """A message carries the mean of the own model and of others' last messages, and the sum of their shares as its weight."""

    def __init__(
        self, shards: Shards, algorithm: RelaySum, config: Config, post: Post, metrics: Metrics, first_id: int
    ) -> None:
        super().__init__(shards, algorithm, config, post, metrics, first_id)
        self._heard: dict[int, dict[str, Heard]] = {}  # by round, the last two
        self._scratch = Scratch()

    def seat(self, seat: Seat, now: float) -> None:
        """In another tree, other nodes are behind an edge: relays begin anew."""
        self._heard = {}
        super().seat(seat, now)

    def _planned(self, plan: Plan) -> Plan:
        if self._seat is None or not self._seat.tree:
            return plan
        return replace(plan, own=1.0, ins=tuple((partner, math.nan) for partner, _ in plan.ins))

    def _finished(self, mixed: Mixed) -> Mixed:
        """The weights are those that came, and leave the own model its share at least."""
        if self._seat is None or not self._seat.tree:
            return mixed
        blocks = len(self.rounds.parts[mixed.plan.part])
        whole = {p: Heard(w, load.blocks) for p, w, load in loads(mixed) if len(load.blocks) == blocks}
        self._heard = {mixed.plan.round: whole} | {r: h for r, h in self._heard.items() if r == mixed.plan.round - 1}
        total, most = sum(weight for _, weight, _ in mixed.parts), 1 - 1 / len(self._seat.ids)
        scale = most / total if total > most * (1 + 1e-9) else 1.0
        parts = tuple((partner, weight * scale, load) for partner, weight, load in mixed.parts)
        ins = tuple((partner, weight) for partner, weight, _ in parts)
        return replace(mixed, plan=replace(mixed.plan, own=1 - scale * total, ins=ins), parts=parts)

    def _differed(self, partner: str, index: int, difference: Difference, seen: float = 1.0) -> None:
        """What is not finite is not relayed."""
        if not difference.finite:
            for heard in self._heard.values():
                heard.pop(partner, None)
        super()._differed(partner, index, difference, seen)

    def _message(self, push: Pushed) -> tuple[float, Callable[[Block], Tensor]]:
        if self._seat is None or not self._seat.tree:
            return super()._message(push)
        _, piece = super()._message(push)
        others = [h for p, h in self._heard.get(push.round - 1, {}).items() if p != push.partner]
        own = 1 / len(self._seat.ids)
        share = own + sum(heard.share for heard in others)
        return share, lambda block: self._mean(block, piece(block), own / share, [(h.share / share, h.blocks) for h in others])

    def _mean(self, block: Block, own: Tensor, weight: float, others: Sequence[tuple[float, Blocks]]) -> Tensor:
        """By kind: of counters the largest, of integers the own."""
        mean, room = self._scratch(0, own), self._scratch(1, own)
        for kind, (value, mine) in columns(block, mean, own):
            value.copy_(mine) if kind in (Kind.COUNTER, Kind.NEWEST) else torch.mul(mine, weight, out=value)
        for share, blocks in others:
            codec, data = blocks[block.index]
            for kind, (value, theirs) in columns(block, mean, codec.decode(data, room)):
                if kind is Kind.COUNTER:
                    torch.maximum(value, theirs, out=value)
                elif kind is not Kind.NEWEST:
                    value.add_(theirs, alpha=share)
        return mean
