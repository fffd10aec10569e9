"""Which carrier an algorithm's pushes have."""

from __future__ import annotations

from optim import Algorithm, Gossip, PushSum, RelaySum, Synchronous
from p2p.agent.mass_pusher import MassPusher
from p2p.agent.overlap import OverlappedPusher
from p2p.agent.post import Post
from p2p.agent.pusher import Pusher
from p2p.agent.relay import RelayPusher
from p2p.config import Config
from p2p.report import Metrics
from p2p.state.mass import Mass
from p2p.state.shards import Shards


def make_pusher(
    algorithm: Algorithm, shards: Shards, config: Config, post: Post, metrics: Metrics, first_id: int
) -> Pusher | MassPusher:
    """Raises TypeError for an algorithm that derives from none of those that push."""
    if isinstance(algorithm, Gossip) and algorithm.overlap:
        return OverlappedPusher(shards, algorithm, config, post, metrics, first_id)
    if isinstance(algorithm, RelaySum):
        return RelayPusher(shards, algorithm, config, post, metrics, first_id)
    if isinstance(algorithm, Synchronous):
        return Pusher(shards, algorithm, config, post, metrics, first_id)
    if isinstance(algorithm, PushSum) and isinstance(shards, Mass):
        return MassPusher(shards, algorithm, config, post, metrics, first_id)
    raise TypeError(f"{type(algorithm).__name__} must derive from optim.Async, Synchronous or PushSum: these have an exchange")
