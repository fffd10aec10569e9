"""The algorithms that come with the package; importing this registers them."""

from optim.asynchronous import Async
from optim.gossip import Gossip

__all__ = ["Async", "Gossip"]
