"""SelSync's rule against a recursion, and how often swaps are asked for; layer-wise swaps, spread over a period."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

import optim
from p2p.agent.swapper import Swapper
from p2p.net.messages import Ask
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.invariants import check
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Drifting
from p2p.state import Method
from tests.simulation.swap_world import SwapWorld, sources
from topology import SpecError


def flags(squares: list[float], spec: str) -> str:
    """Which steps matter, "x", where the gradients have these squared norms."""
    model = nn.Linear(2, 2, bias=False)
    method = Method(optim.make(spec), model, [torch.optim.SGD(model.parameters(), lr=0.1)])
    seen = ""
    for step, squared in enumerate(squares, 1):
        model.weight.grad = torch.full((2, 2), (squared / 4) ** 0.5)
        method.before(step)
        seen += "." if method.silent else "x"
        method.after()
        method.mixed(step, 0, 2)
    return seen


def recursion(squares: list[float], delta: float, silence: int, a: float = 0.16) -> str:
    """e <- (1 - a) e + a s; |e - e_before| / e_before >= delta, or `silence` silent steps before."""
    e, quiet, seen = squares[0], 0, "x"
    for s in squares[1:]:
        before, e = e, (1 - a) * e + a * s
        matters = abs(e - before) / before >= delta or quiet >= silence
        quiet = 0 if matters else quiet + 1
        seen += "x" if matters else "."
    return seen


@pytest.mark.parametrize(
    ("spec", "squares", "expected"),
    [
        ("selsync:delta=0.3,silence=2", [1.0] * 8, "x..x..x."),
        ("selsync:delta=0.3,silence=99", [1, 1, 2.8, 2.9, 1, 10, 1], "x....x."),  # 1.8 more: 0.288; 9 more of 1.31: above
        ("selsync:delta=0.28,silence=99", [1, 1, 2.8, 2.8], "x.x."),
        ("selsync:delta=0", [1.0] * 4, "xxxx"),
    ],
)
def test_literal(spec: str, squares: list[float], expected: str) -> None:
    assert flags(squares, spec) == expected


def test_the_rule_is_the_recursion() -> None:
    generator = torch.Generator().manual_seed(0)
    squares = (torch.randn(300, generator=generator).exp() + 0.1).tolist()
    for delta, silence in ((0.1, 5), (0.3, 5), (0.3, 2), (1.0, 20)):
        found = flags(squares, f"selsync:delta={delta},silence={silence}")
        assert found == recursion(squares, delta, silence)
        assert "x" in found[5:] and "." in found


@pytest.mark.parametrize("spec", ["selsync:delta=-1", "selsync:silence=-1", "selsync:memory=0", "layerwise:period=0"])
def test_what_cannot_be_is_refused(spec: str) -> None:
    with pytest.raises(SpecError):
        optim.make(spec)


def swapped(algorithm: str) -> int:
    swarm = SimulatedSwarm(
        6,
        seed=1,
        algorithm=algorithm,
        workload=Drifting(64, 1),
        compute=Paced(mean=0.15, variation=0.1, seed=1),
        underlay=Underlay(1, access=Line(latency=0.005)),
    ).run(steps=40, quiet=3.0)
    check(swarm, wait=0.0)  # the mean moves by local updates only
    exchanges = [node.agent.exchange for node in swarm.nodes]
    return sum(exchange.swaps.tally.swapped for exchange in exchanges if isinstance(exchange, Swapper))


def test_silent_steps_ask_for_nothing_and_silence_is_bounded() -> None:
    always, seldom = swapped("selsync:delta=0"), swapped("selsync:delta=1e9,silence=4")
    assert always / 8 < seldom < always / 3


@pytest.mark.parametrize(("algorithm", "most"), [("async:period=5", 9), ("layerwise", 2)])
def test_layerwise_spreads_blocks_over_the_period(algorithm: str, most: int) -> None:
    """Nine blocks, each asked for once in 5 steps; in no step more than `most`."""
    world = SwapWorld([sources(i) for i in range(2)], algorithm=algorithm)
    swapper = world.nodes["0"]
    swapper.swaps.pace, swapper.swaps.period = 10.0, 5
    world.arm("0")
    world.run(499.0)
    asked = [(when, ask.shard) for when, sender, _, ask in world.log if sender == "0" and isinstance(ask, Ask)]
    blocks = Counter(i for _, shard in asked for i in range(shard.first, shard.first + shard.count))
    assert set(blocks.values()) <= {9, 10} and len(blocks) == len(swapper.shards.blocks) == 9
    steps = Counter[int]()
    for when, shard in asked:
        steps[int(when // 10)] += shard.count
    assert max(steps.values()) == most
