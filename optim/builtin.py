"""The algorithms that come with the package; importing this registers them."""

from optim.asynchronous import AdPsgd, Async
from optim.d2 import D2
from optim.decentlam import DecentLaM
from optim.gossip import Gossip, Local
from optim.gradients import GradientGossip
from optim.push_sum import PushSum
from optim.slowmo import SlowMo
from optim.tracking import GradientTracking, MomentumTracking

__all__ = [
    "D2",
    "AdPsgd",
    "Async",
    "DecentLaM",
    "Gossip",
    "GradientGossip",
    "GradientTracking",
    "Local",
    "MomentumTracking",
    "PushSum",
    "SlowMo",
]
