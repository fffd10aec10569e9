"""The shell around the lease machines: one per data set of the script; their words go out, their waits are waited."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from p2p.agent.finished import Finished
from p2p.agent.instructions import Send
from p2p.agent.leases import Begin, Leases, Wait
from p2p.config import WorkConfig
from p2p.net.messages import Message, Work

log = logging.getLogger("starlings")


class Works:
    """All lease machines of a node, on its event loop. `send` carries a message; `arm` is called when `wake` has changed."""

    def __init__(
        self,
        node: str,
        config: WorkConfig,
        rng: random.Random,
        version: int,
        send: Callable[[str, Message], object],
        arm: Callable[[], None],
    ) -> None:
        self.all: list[Leases] = []
        self.samples = 0  # used so far
        self._node, self._config, self._rng, self._version = node, config, rng, version
        self._send, self._arm = send, arm
        self._members: tuple[str, ...] = ()
        self._news = asyncio.Event()

    # --- what the agent calls -----------------------------------------------------------------------------------------

    def seat(self, members: Iterable[str], now: float) -> None:
        """Another view."""
        self._members = tuple(members)
        for leases in self.all:
            self._perform(leases.seat(self._members, now))
        self._news.set()

    def handle(self, sender: str, message: Work, now: float) -> None:
        """A member's word; about a data set that this script doesn't have (yet), it is passed over."""
        if not 0 <= message.number < len(self.all):
            return
        leases = self.all[message.number]
        refused = leases.refused
        self._perform(leases.handle(sender, message, now))
        if leases.refused and not refused:
            log.warning(
                "node %s cuts data set %d into %d chunks, this node into %d: they don't share it",
                sender[:10],
                leases.number,
                message.chunks,
                leases.chunks,
            )
        self._news.set()

    def tick(self, now: float) -> None:
        """To be called at `wake`."""
        for leases in self.all:
            self._perform(leases.tick(now))

    @property
    def wake(self) -> float:
        return min([leases.wake for leases in self.all]) if self.all else math.inf

    # --- what the trainer's side calls --------------------------------------------------------------------------------

    async def open(self, chunks: int, size: int) -> Leases:
        """One more data set of the script."""
        now = asyncio.get_running_loop().time()
        leases = Leases(self._node, len(self.all), chunks, size, self._config, self._rng, self._version, now)
        self.all.append(leases)
        self._perform(leases.seat(self._members, now))
        return leases

    async def sync(self, leases: Leases) -> None:
        """Hear what is done already, if anybody answers."""
        if len(self._members) < 2 or leases.synced:
            return
        self._perform(leases.ask(self._now()))
        deadline = asyncio.get_running_loop().time() + self._config.refresh
        while not leases.synced and asyncio.get_running_loop().time() < deadline:
            await self._news_until(deadline)

    async def begin(self, leases: Leases, epoch: int) -> None:
        """See Leases.begin."""
        leases.begin(epoch, self._now())
        self._arm()

    async def take(self, leases: Leases) -> int | None:
        """The next chunk; None where nothing is left in this epoch. Waits for nothing but claims to settle."""
        while isinstance(answer := leases.take(self._now()), Wait):
            self._arm()
            await self._news_until(answer.until)
        self._arm()
        return answer.chunk if isinstance(answer, Begin) else None

    async def release(self, leases: Leases, chunks: Sequence[int]) -> None:
        """See Leases.release."""
        leases.release(chunks, self._now())
        self._arm()

    async def restore(self, leases: Leases, finished: Finished, begun: Sequence[int]) -> None:
        """See Leases.restore."""
        leases.restore(finished, begun, self._now())
        self._arm()

    async def finished(self, leases: Leases) -> Finished:
        """A copy of what is finished now."""
        return Finished(leases.finished.floor, leases.finished.bitmap)

    async def rest(self) -> None:
        """The trainer takes no more work."""
        for leases in self.all:
            leases.rest(self._now())
        self._arm()

    async def current(self) -> int | None:
        """The swarm's epoch: the first that is not complete; None without data sets."""
        for leases in self.all:
            await self.sync(leases)
        return min((leases.current for leases in self.all), default=None)

    async def more(self, epoch: int) -> bool:
        """Wait until there is work to be taken up again in this epoch (True), or it is complete (False)."""
        while not all(leases.complete(epoch) for leases in self.all if leases.epoch >= 0):
            now = self._now()
            if any(leases.left(now) for leases in self.all if leases.epoch >= 0):
                return True
            self._arm()
            await self._news_until(now + self._config.refresh)
        return False

    def progress(self, leases: Leases, samples: int, chunks: Sequence[int]) -> None:
        """See Leases.progress; a plain call, for `call_soon_threadsafe`."""
        self.samples += samples
        leases.progress(samples, chunks, self._now())
        self._news.set()
        self._arm()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _perform(self, sends: Sequence[Send]) -> None:
        for send in sends:
            self._send(send.node, send.message)
        self._arm()

    async def _news_until(self, deadline: float) -> None:
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._news.wait()
