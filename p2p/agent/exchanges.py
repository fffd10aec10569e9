"""Which carrier an algorithm's exchange has."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from optim import Algorithm, Async
from p2p.agent.post import Post
from p2p.agent.swapper import Swapper
from p2p.config import Config
from p2p.report import Metrics
from p2p.state.shards import Shards

if TYPE_CHECKING:
    from p2p.agent.mass_pusher import MassPusher
    from p2p.agent.pusher import Pusher

Exchange: TypeAlias = "Swapper | Pusher | MassPusher"


def make_exchange(
    algorithm: Algorithm, shards: Shards, config: Config, post: Post, metrics: Metrics, first_id: int
) -> Exchange:
    """Raises TypeError for an algorithm that derives from none of those that have one."""
    if isinstance(algorithm, Async):
        return Swapper(shards, algorithm, config.exchange, post, metrics, first_id)
    from p2p.agent.pushers import make_pusher  # not needed for swaps, and slow to load

    return make_pusher(algorithm, shards, config, post, metrics, first_id)
