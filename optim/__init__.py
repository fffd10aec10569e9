"""What is mixed, when, and how: algorithms of decentralized optimization. Knows `topology`; does no I/O, knows no socket."""

from optim.adam import AccumAdam, SwarmAdam
from optim.algorithm import Algorithm, Step, Vector
from optim.builtin import (
    D2,
    PALSGD,
    AdPsgd,
    Async,
    DecentLaM,
    DiLoCo,
    Elastic,
    Extra,
    Gossip,
    GradientGossip,
    GradientTracking,
    Layerwise,
    Local,
    MomentumTracking,
    OverlappedLocal,
    PushSum,
    SelSync,
    SlowMo,
)
from optim.compatibility import Incompatible, check
from optim.kinds import Kind
from optim.registry import make, names, register, spec_of
from optim.synchronous import Synchronous

__all__ = [
    "D2",
    "PALSGD",
    "AccumAdam",
    "AdPsgd",
    "Algorithm",
    "Async",
    "DecentLaM",
    "DiLoCo",
    "Elastic",
    "Extra",
    "Gossip",
    "GradientGossip",
    "GradientTracking",
    "Incompatible",
    "Kind",
    "Layerwise",
    "Local",
    "MomentumTracking",
    "OverlappedLocal",
    "PushSum",
    "SelSync",
    "SlowMo",
    "Step",
    "SwarmAdam",
    "Synchronous",
    "Vector",
    "check",
    "make",
    "names",
    "register",
    "spec_of",
]
