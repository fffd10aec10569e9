"""The algorithms that come with the package; importing this registers them."""

from optim.aged import Aged, Progressive
from optim.asynchronous import AdPsgd, Async
from optim.cyclic import BlockCyclic, DreamDDP
from optim.d2 import D2
from optim.decentlam import DecentLaM
from optim.diloco import PALSGD, DiLoCo
from optim.elastic import Elastic
from optim.extra import Extra
from optim.gossip import Gossip, Local, OverlappedLocal
from optim.gradients import GradientGossip
from optim.line_search import LineSearch
from optim.od_sgd import OneStepDelay
from optim.periodic import PeriodicAverage
from optim.pso import ParticleSwarm
from optim.push_sum import PushSum
from optim.relay import RelaySum
from optim.selsync import Layerwise, SelSync
from optim.slowmo import SlowMo
from optim.tracking import GradientTracking, MomentumTracking

__all__ = [
    "D2",
    "PALSGD",
    "AdPsgd",
    "Aged",
    "Async",
    "BlockCyclic",
    "DecentLaM",
    "DiLoCo",
    "DreamDDP",
    "Elastic",
    "Extra",
    "Gossip",
    "GradientGossip",
    "GradientTracking",
    "Layerwise",
    "LineSearch",
    "Local",
    "MomentumTracking",
    "OneStepDelay",
    "OverlappedLocal",
    "ParticleSwarm",
    "PeriodicAverage",
    "Progressive",
    "PushSum",
    "RelaySum",
    "SelSync",
    "SlowMo",
]
