"""The algorithms that come with the package; importing this registers them."""

from optim.asynchronous import AdPsgd, Async
from optim.d2 import D2
from optim.decentlam import DecentLaM
from optim.diloco import PALSGD, DiLoCo
from optim.elastic import Elastic
from optim.extra import Extra
from optim.gossip import Gossip, Local, OverlappedLocal
from optim.gradients import GradientGossip
from optim.push_sum import PushSum
from optim.selsync import Layerwise, SelSync
from optim.slowmo import SlowMo
from optim.tracking import GradientTracking, MomentumTracking

__all__ = [
    "D2",
    "PALSGD",
    "AdPsgd",
    "Async",
    "DecentLaM",
    "DiLoCo",
    "Elastic",
    "Extra",
    "Gossip",
    "GradientGossip",
    "GradientTracking",
    "Layerwise",
    "Local",
    "MomentumTracking",
    "OverlappedLocal",
    "PushSum",
    "SelSync",
    "SlowMo",
]
