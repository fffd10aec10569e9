"""What must hold after any run, whatever struck: each check raises `AssertionError` that says what does not, and where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from p2p.agent.swapper import Kept, Swapper
from p2p.sim.node import Life, SimulatedNode
from p2p.sim.workloads import Averaging

if TYPE_CHECKING:
    from p2p.sim.swarm import SimulatedSwarm

ROUNDING = 1e-9
"""Of the ledger, per element."""
WARM = 4
"""Steps before a swarm knows its pace."""


def check(swarm: SimulatedSwarm, *, wait: float) -> None:
    """Everything that holds after a run with a quiet end; no step may have waited for others longer than `wait` seconds."""
    no_errors(swarm)
    views_agree(swarm)
    all_progress(swarm, wait=wait)
    memory_bounded(swarm)
    ledger_balanced(swarm)


def no_errors(swarm: SimulatedSwarm) -> None:
    """No agent had to swallow an exception of its own."""
    for node in swarm.nodes:
        internal = node.agent.metrics.snapshot().get(("messages_rejected", "internal"), 0)
        assert not internal, f"{node.name} could not handle {internal:g} messages"


def views_agree(swarm: SimulatedSwarm) -> None:
    """Every living node sees exactly the living ones."""
    living = {node.agent.node: node.name for node in swarm.living}
    for node in swarm.living:
        seen = {member.id for member in node.agent.view.members}
        missing, ghosts = sorted(living[i] for i in living.keys() - seen), sorted(swarm.names(seen - living.keys()))
        assert not missing and not ghosts, f"{node.name} does not see {missing or 'anybody wrong'}, and sees {ghosts} in vain"


def all_progress(swarm: SimulatedSwarm, *, wait: float) -> None:
    """Nobody who lives stands still, or ever waited for others longer than `wait` seconds (stops aside)."""
    for node in swarm.living:
        assert node.life is Life.DONE, f"{node.name} hangs in step {node.steps + 1}"
        assert node.steps, f"{node.name} has done no step"
        longest = max(report.wait for report in node.reports) - node.process.stopped
        assert longest <= wait, f"{node.name} waited {longest:.3f} s for others in one step, {wait} s allowed"


def exchanges_flow(swarm: SimulatedSwarm, *, steps: int) -> None:
    """Nobody who was never stopped goes longer than so many steps, the first few aside, without an exchange."""
    for node in swarm.living:
        alone = longest = 0
        for report in node.reports[WARM:] if not node.process.stopped else ():
            alone = 0 if report.partners else alone + 1
            longest = max(longest, alone)
        assert longest <= steps, f"{node.name} has exchanged with nobody in {longest} steps, {steps} allowed"


def memory_bounded(swarm: SimulatedSwarm) -> None:
    """What is under way or kept for a partner stays within its credit and a message; all own swaps have come to an end."""
    for node in swarm.living:
        exchange, config = node.agent.exchange, node.agent.config.exchange
        limit = config.credit_max
        assert exchange is not None
        assert exchange.drained, f"{node.name} has swaps that nobody answers"
        for partner, link in exchange.links.items():
            assert link.under_way <= limit, f"{node.name} has {link.under_way} bytes under way to {swarm.names([partner])}"
        for partner, answers in kept(node).items():
            held, room = sum(answer.used for answer in answers), limit + config.message_bytes
            assert held <= room, f"{node.name} keeps {held} bytes of answers for {swarm.names([partner])}"


def ledger_balanced(swarm: SimulatedSwarm) -> None:
    """No exchange has lost or doubled anything: see `Ledger`."""
    if swarm.ledger is not None and not swarm.parted:
        swarm.ledger.check(swarm.living)


class Ledger:
    """The sum of all gossip copies moves by local updates only, in swaps of vectors.

    What a node holds is booked in when it enters and out when it is gone. Where one goes in mid-swap, the change under way
    may count on one side only: its size is the `slack`. Once the living have given each other up, nothing can be said.
    """

    def __init__(self, workload: Averaging) -> None:
        self._workload = workload
        self._balance = torch.zeros(workload.size, dtype=torch.float64)
        self._slack = torch.zeros(workload.size, dtype=torch.float64)
        self._booked: dict[str, set[int]] = {}  # blocks that a node holds

    def took(self, node: SimulatedNode, block: int) -> None:
        """A joiner holds this block from now on."""
        booked = self._booked.setdefault(node.name, set())
        if block not in booked:
            booked.add(block)
            self._book(node, block, 1)

    def enter(self, node: SimulatedNode) -> None:
        """The node holds all blocks."""
        for block in range(len(node.shards.blocks)):
            self.took(node, block)

    def gone(self, node: SimulatedNode) -> None:
        """The node died or has left, with what it holds."""
        for block in self._booked.pop(node.name, set()):
            self._book(node, block, -1)

    def _book(self, node: SimulatedNode, block: int, sign: int) -> None:
        first = sum(b.elements for b in node.shards.blocks[:block])
        piece = torch.zeros(node.shards.blocks[block].elements, dtype=torch.float64)
        node.shards.read(node.shards.blocks[block], piece)
        self._balance[first : first + len(piece)] += sign * piece

    def between(self, node: SimulatedNode, others: Iterable[SimulatedNode]) -> None:
        """The slack after `node` is gone; to be called once nothing of it is under way, and before it is given up."""
        for other in others:
            for answer in [*kept(node).get(other.agent.node, ()), *kept(other).get(node.agent.node, ())]:
                self._slack += answer.buffer[: answer.used].view(torch.float64).abs()

    def check(self, living: Sequence[SimulatedNode]) -> None:
        """Once all swaps are drained."""
        held = torch.stack([holding(node) for node in living]).sum(0)
        off = (held - self._balance - self._workload.moved()).abs() - self._slack
        worst = int(off.argmax())
        assert off[worst] <= ROUNDING, (
            f"the sum of element {worst} moved by {off[worst]:.3g} more than the {self._slack[worst]:.3g} under way to the dead"
        )


def holding(node: SimulatedNode) -> Tensor:
    """A node's gossip copy of a vector."""
    out = [torch.zeros(block.elements, dtype=torch.float64) for block in node.shards.blocks]
    for block, piece in zip(node.shards.blocks, out, strict=True):
        node.shards.read(block, piece)
    return torch.cat(out)


def kept(node: SimulatedNode) -> dict[str, list[Kept]]:
    """By partner, the answers that a node keeps until it hears that they came."""
    exchange = node.agent.exchange
    if not isinstance(exchange, Swapper):
        return {}
    shelves = exchange.swaps._answers._shelves
    return {partner: [k for _, k in shelf.answers.values() if isinstance(k, Kept)] for partner, shelf in shelves.items()}
