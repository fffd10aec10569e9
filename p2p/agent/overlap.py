"""Rounds that travel during the next step's computation: what all pushed after one step joins after the next."""

from __future__ import annotations

import asyncio

from p2p.agent.pusher import Pusher, loads
from p2p.agent.rounds import Mixed
from p2p.state.shards import Part


class OverlappedPusher(Pusher):
    """x <- W x - lr g(x): a part counts as the change that it makes to the state as published, like one that came late."""

    def offer(self, step: int) -> None:
        """The state is published once the round before has joined it."""
        self._step = step

    async def arrivals(self) -> None:
        """Wait for the round that is under way. Where links carry less than a step computes, this is what slows it down."""
        now = asyncio.get_running_loop().time()
        self._launch(now)
        if self.rounds.waiting:
            self.rounds.wait_from(now)
            await self._wait()

    def settle(self) -> None:
        """The round's parts join, then the state is published anew."""
        mixed, self._mixed = self._mixed, None
        if mixed is not None:
            self._join(mixed)
        self._offered = self._publish(self._step)

    def stepped(self, step: int, now: float) -> None:
        """The trainer computes from now on, and what it has published travels."""
        super().stepped(step, now)
        self._launch(now)

    @property
    def wake(self) -> float:
        """The deadline concerns only who waits, in `arrivals`."""
        return self.rounds.errand

    def _launch(self, now: float) -> None:
        published, self._offered = self._offered, None
        if published is not None and not self._closed:
            self._begin(published, now)

    def _join(self, mixed: Mixed) -> None:
        published, neighbours = self._published[mixed.plan.round], loads(mixed)
        weights = self._weigh([(weight, load) for _, weight, load in neighbours], 1.0)
        for (sender, _, load), weight in zip(neighbours, weights, strict=True):
            for index, (codec, data) in load.blocks.items():
                self._join_late(sender, index, Part(weight, data, codec, load.step), published)
