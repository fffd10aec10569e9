"""A scenario: who trains what, on which machines and links, with which faults, until when; as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

import torch

from optim import codec as codecs
from optim.codec import RAW
from p2p.config import LAN, WAN, Config
from p2p.errors import ConfigError
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.faults import Fault, Join, Slow
from topology import SpecError

if TYPE_CHECKING:
    from p2p.sim.workloads import Workload

WorkloadName = Literal["consensus", "quadratic", "digits"]
Split = Literal["sorted", "shuffled", "dirichlet"]

CENTRAL = ("all-reduce", "parameter-server")
"""Algorithms beside those of `optim`, for comparison: they have no topology."""
LAN_LINE = Line(latency=0.00025, bandwidth=10e9 / 8)
WAN_LINE = Line(latency=0.02, bandwidth=100e6 / 8)
STEPS_MAX = 10_000
"""Steps after which a run ends that has no other limit."""
REAL_BLOCK = LAN.exchange.block_bytes // 4
"""Elements."""
ELEMENTS = {"consensus": 64, "quadratic": 16}
"""Of the vectors that stand for a model."""


@dataclass(frozen=True, slots=True)
class Until:
    """A run ends with whichever comes first; `loss` and `accuracy` are the mean model's."""

    loss: float | None = None
    """Consensus: distance to the mean, as a share of that at the start. Quadratic: the mean function, above its minimum.
    Digits: cross entropy on held-out images."""
    accuracy: float | None = None
    """Of digits: share of the held-out images."""
    time: float | None = None
    """Virtual seconds."""
    steps: int | None = None
    """Of every living node."""

    @property
    def target(self) -> bool:
        """Whether there is something to reach."""
        return self.loss is not None or self.accuracy is not None


@dataclass(frozen=True, slots=True)
class Straggler:
    """`count` nodes, each `factor` times slower than the others."""

    count: int
    factor: float


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One run. Raises ConfigError for what can't be.

    Args:
        algorithm: Of `optim`, or `all-reduce`, or `parameter-server`, with parameters.
        sites: Datacenters, to which the nodes are dealt in turn.
        lan: Bandwidth of each node's own line; latency (one way) between two nodes of a site.
        wan: The line between two sites, shared by their nodes.
        model: Bytes of parameters. What is simulated is smaller; its bytes count so many times.
        step: Seconds that a step computes; `variation` is their coefficient of variation. At 0 all nodes go in lockstep, as
            real ones never do.
        stragglers: The first nodes are slow, in this order.
        blocks: The model travels in so many pieces at most.
        codec: How it travels, as `ExchangeConfig.codec`.
    """

    nodes: int = 8
    topology: str = "one-peer-exponential"
    algorithm: str = "async"
    workload: WorkloadName = "digits"
    split: Split = "sorted"
    sites: int = 1
    lan: Line = LAN_LINE
    wan: Line = WAN_LINE
    model: float = 100e6
    step: float = 0.15
    variation: float = 0.1
    stragglers: tuple[Straggler, ...] = ()
    faults: tuple[Fault, ...] = ()
    until: Until = field(default=Until(steps=200))
    seed: int = 0
    blocks: int = 4
    codec: str = RAW.name

    def __post_init__(self) -> None:
        for wrong in self._wrong():
            raise ConfigError(wrong)

    def _wrong(self) -> Iterator[str]:
        """What can't be, in words."""
        if not 1 <= self.sites <= self.nodes <= 4096:
            yield f"{self.nodes} nodes in {self.sites} sites: at least one node a site, and at most 4096 nodes, are possible"
        for name, known, value in (("workload", WorkloadName, self.workload), ("split", Split, self.split)):
            if value not in get_args(known):
                yield f"there is no {name} {value!r}; there are {', '.join(get_args(known))}"
        if self.until.accuracy is not None and self.workload != "digits":
            yield f"the workload {self.workload} has no accuracy; give until loss=..., or take the workload digits"
        if not 0 <= self.variation <= 3:
            yield f"a variation of {self.variation:g} is not possible: from 0 to 3, as a share of the step time"
        if sum(slow.count for slow in self.stragglers) > self.nodes:
            yield f"{sum(slow.count for slow in self.stragglers)} stragglers are more than {self.nodes} nodes"
        yield from self._wrong_faults()

    def _wrong_faults(self) -> Iterator[str]:
        last = self.nodes + sum(isinstance(fault, Join) for fault in self.faults) - 1
        for fault in self.faults:
            node = fault.link if isinstance(fault, Slow) else getattr(fault, "node", 0)
            if isinstance(node, int) and node > last:
                yield f"{fault}: there is no node {node}; the nodes are 0 to {last}"
            for site in getattr(fault, "sites", ()):
                if site not in self.site_names:
                    yield f"{fault}: there is no site {site!r}; there are {', '.join(self.site_names)}"

    @property
    def site_names(self) -> tuple[str, ...]:
        """site0, site1 ..."""
        return tuple(f"site{number}" for number in range(self.sites))

    @property
    def choice(self) -> str:
        """What is compared: algorithm and topology, or the algorithm alone where it has none; and the codec, if any."""
        if self.central:
            return self.algorithm
        return f"{self.algorithm} on {self.topology}" + (f", {self.codec}" if self.codec != RAW.name else "")

    # --- what it is made of ------------------------------------------------------------------------------------------

    def compute(self) -> Paced:
        """Whose steps take how long."""
        factors = [slow.factor for slow in self.stragglers for _ in range(slow.count)]
        return Paced(self.step, self.variation, dict(enumerate(factors)), seed=self.seed)

    def underlay(self) -> Underlay:
        """The lines; hosts are named by the swarm."""
        inside = Line(self.lan.latency)
        return Underlay(self.seed, access=Line(bandwidth=self.lan.bandwidth), inside=inside, between=self.wan)

    @property
    def central(self) -> bool:
        """Whether its algorithm is none of `optim`, and has no topology."""
        return self.algorithm.partition(":")[0] in CENTRAL

    def work(self) -> Workload:
        """What is trained."""
        from p2p.sim import workloads

        if self.workload == "digits":
            return workloads.Digits(self.nodes, self.split, self.seed)
        if self.workload == "quadratic":
            return workloads.Quadratics(self.nodes, ELEMENTS["quadratic"], self.seed)
        return workloads.Averaging(ELEMENTS["consensus"], self.seed)

    def config(self, nbytes: int) -> Config:
        """For a stand-in model of `nbytes`: as many messages and as much under way as the real one would have."""
        base = WAN if self.sites > 1 else LAN
        real, scale = base.exchange, self.model / nbytes
        pieces = max(1, min(self.blocks, round(self.model / real.block_bytes)))
        block = 8 * -(-nbytes // (8 * pieces))

        def scaled(nbytes: int) -> int:
            return max(block, int(nbytes / scale))

        message, start = scaled(real.message_bytes), scaled(real.credit_start)
        most = max(4 * message, scaled(real.credit_max))  # swaps have a half of it: two messages, as they have in reality
        sizes = replace(real, block_bytes=block, message_bytes=message, credit_start=start, credit_max=most, codec=self.codec)
        return replace(base, exchange=sizes)

    def scale(self, elements: int, dtype: torch.dtype) -> float:
        """Bytes of the real model (float32) per byte of a stand-in of so many elements, as the codec makes them.

        Short pieces have more scales in them than long ones; what mixes several codecs is taken as if it had none.
        """
        block = self.config(elements * dtype.itemsize).exchange.block_bytes // dtype.itemsize
        try:
            codec = codecs.make(self.codec)
        except SpecError:
            codec = RAW
        real = codec.nbytes(REAL_BLOCK, torch.float32) / (REAL_BLOCK * 4)
        return self.model / (elements * dtype.itemsize) * real * block * dtype.itemsize / codec.nbytes(block, dtype)
