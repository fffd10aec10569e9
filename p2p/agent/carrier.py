"""What all exchanges have in common: what partners' blocks differed by goes to the report, the gate, and the counters."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable

from optim import Kind
from p2p.agent.activity import Activity, Calm, Pace
from p2p.agent.framing import Framing
from p2p.agent.gate import Gate, Shares
from p2p.agent.history import History
from p2p.agent.post import Post
from p2p.agent.staging import Staging
from p2p.net.keys import short
from p2p.report import Metrics
from p2p.state.outcome import Difference
from p2p.state.shards import Shards

log = logging.getLogger("starlings")


class Carrier:
    """Base of the exchanges. `clip`: the gate's factor, 0 for none; `shares`: see `Gate`."""

    def __init__(self, shards: Shards, post: Post, metrics: Metrics, clip: float, shares: Shares) -> None:
        self.post = post
        self.metrics = metrics
        self.pace = Pace()
        self.activity = Activity()
        self.calm = Calm(sum(b.kind is Kind.PARAMETER for b in shards.blocks))
        self.gate = Gate([b.kind for b in shards.blocks], clip, shares)
        self.history = History()
        self._blocks = shards.blocks
        self._framing = Framing(shards.blocks)
        self._staging = Staging()
        self._far: set[str] = set()
        self.more = False  # another round belongs to the same step
        self.silent = False  # set by the trainer: its last step is no reason to ask for a swap
        self.loss = 0.0  # set by the trainer: it travels with what its last step publishes
        self.training = True  # until consensus

    @property
    def far(self) -> tuple[str, ...]:
        """Partners whose models are beyond the gate again and again, or not finite."""
        return self.gate.far

    def part(self, step: int) -> int:
        """The part of the state whose turn it is after this step."""
        return 0

    def await_state(self, members: int) -> None:
        """The own state counts no more: that of one of so many members is on its way."""

    def _keep(self, members: Container[str]) -> None:
        """The view changed: forget those who are gone."""
        self.pace.keep(members)
        self.gate.keep(members)
        self._far = {node for node in self._far if node in members}

    def _nonfinite(self, names: Iterable[str]) -> None:
        for name in names:
            self.metrics.add("non_finite", name)

    def _differed(self, partner: str, index: int, difference: Difference, seen: float = 1.0) -> None:
        """A partner's block was compared with the own one, and mixed if it is finite; `seen` times as much differs in all."""
        block = self._blocks[index]
        distance = (difference.squared / block.elements) ** 0.5
        self.history.note("mixes with" if difference.finite else "refuses what is not finite of", partner, index, 1, distance)
        self._nonfinite(difference.nonfinite)
        self.gate.saw(partner, index, difference)
        if difference.clipped:
            self.metrics.add("clipped", short(partner))
        if difference.clipped or not difference.finite:
            self._blame()
        if difference.finite and block.kind is Kind.PARAMETER:
            self.activity.differed(seen * difference.squared, block.elements)
            self.calm.differed(index, seen * difference.squared / block.elements)

    def _blame(self) -> None:
        """Say it once of each partner."""
        for partner in set(self.gate.far) - self._far:
            self._far.add(partner)
            log.warning("node %s: its model is far from this one's, or not finite, again and again", short(partner))
