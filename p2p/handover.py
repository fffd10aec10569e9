"""The handover: how a node comes by a state that is not its own, a member's or a checkpoint's, and goes on from there."""

from __future__ import annotations

from p2p.agent.agent import Agent
from p2p.agent.participant import Task
from p2p.data import Epoch
from p2p.feed import Feed
from p2p.net.messages import SnapshotOffer
from p2p.progress import Arrival
from p2p.saving import Saving
from p2p.state.checkpoint import Saved
from p2p.thread import LoopThread, soon


class Handover:
    """For the trainer's thread; the waiting is on the agent's loop."""

    def __init__(self, thread: LoopThread, agent: Agent, task: Task, saving: Saving, feed: Feed, epoch: Epoch) -> None:
        self._thread, self._agent, self._task = thread, agent, task
        self._saving, self._feed, self._epoch = saving, feed, epoch
        self.midway = False
        """Whether this node goes on in the middle of a pass over its data."""

    def take(self, offer: SnapshotOffer) -> None:
        """A donor's state becomes this node's."""
        self._saving.take(offer.extras)
        self._task.shards.apply()
        self._task.method.enter()
        self._epoch.number = offer.epoch
        self._thread.call(soon(self._agent.ready, offer))

    def pull(self, least: int = 0) -> SnapshotOffer:
        """The state of members that are at step `least` or further; people see how it comes."""
        self._agent.watch = arrival = Arrival()
        try:
            return self._thread.call(self._agent.pull_from_any(self._task.shards, least))
        finally:
            arrival.close()

    def agree(self) -> None:
        """Nodes that resumed from different checkpoints go on from the newest; some may have begun."""
        furthest, _ = self._thread.call(self._agent.ahead())
        if furthest > self._agent.origin:
            self.take(self.pull(furthest))

    def newer(self, saved: Saved) -> bool:
        """Whether nobody trains yet, and nobody is as far as this checkpoint."""
        furthest, begun = self._thread.call(self._agent.ahead())
        return not begun and saved.step > furthest

    def restore(self, saved: Saved) -> None:
        """Go on from a checkpoint."""
        self._saving.restore(saved, self._task.method, self._task.shards)
        self._feed.resumed = saved.state["samplers"]
        self._epoch.number = saved.state["epoch"]
        self.midway = self._feed.midway(self._epoch.number)
        offer = SnapshotOffer(0, saved.step, saved.state["epoch"], saved.state["round"], "", b"", b"")
        self._thread.call(soon(self._agent.ready, offer))
