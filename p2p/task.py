"""What a node trains, and under which contract: its keywords, else the swarm's terms, else the defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer

import optim
import topology as topologies
from optim import Algorithm
from p2p.agent.participant import Task
from p2p.config import Config
from p2p.errors import ConfigError
from p2p.net.messages import Contract
from p2p.settings import ALGORITHM, TOPOLOGY, Settings
from p2p.state import Method
from topology import Topology


def make_task(
    model: nn.Module, optimizers: Sequence[Optimizer], settings: Settings, config: Config, theirs: Contract | None
) -> Task:
    """Lays out the shared state; `theirs` is the contract of the swarm that is being joined.

    Raises ConfigError for a topology or an algorithm that can't be, StateError for a model that can't be shared.
    """
    algorithm, topology, fingerprint = _chosen(settings, theirs)
    method = Method(algorithm, model, optimizers)
    shards = method.shards(config.exchange.block_bytes, taken=theirs is None)
    contract = Contract(
        shards.schema.fingerprint,
        shards.schema.hashes,
        "+".join(type(optimizer).__name__ for optimizer in optimizers),
        optim.spec_of(algorithm),
        topologies.spec_of(topology),
        fingerprint,
        theirs.seed if theirs else config.seed,
    )
    return Task(contract, algorithm, topology, method, shards)


def _chosen(settings: Settings, theirs: Contract | None) -> tuple[Algorithm, Topology, bytes]:
    """The algorithm, the topology and its fingerprint, for which its rows are looked at."""
    try:
        algorithm: Algorithm = _made(optim.make, settings.algorithm, theirs.algorithm if theirs else None, ALGORITHM)
        topology: Topology = _made(topologies.make, settings.topology, theirs.topology if theirs else None, TOPOLOGY)
        optim.check(algorithm, topology, settings.wait_for)
        return algorithm, topology, topologies.fingerprint(topology)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _made(make: Any, own: object | None, theirs: str | None, default: str) -> Any:
    """The own choice, else the swarm's (built-in names only: nobody imports a module that a peer names), else the default."""
    if own is not None:
        return make(own)
    return make(theirs, builtin_only=True) if theirs else make(default)
