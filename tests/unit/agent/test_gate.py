"""The gate: limits by the median of partners and the own norm, who is called far, and that what is apart still merges."""

from __future__ import annotations

import math

import pytest
import torch

from optim import Kind
from p2p.agent.gate import PUSHED, STREAK, SWAPPED, Gate
from p2p.net.messages import Answer, Ask
from p2p.state.outcome import UNLIMITED, Difference, Limit
from tests.simulation.swap_world import Plain, SwapWorld


def gate(kind: Kind = Kind.PARAMETER, factor: float = 3.0, seen: tuple[float, ...] = ()) -> Gate:
    made = Gate([kind], factor, SWAPPED)
    for partner, distance in enumerate(seen):
        made.saw(str(partner), 0, Difference(distance**2))
    return made


@pytest.mark.parametrize(
    ("made", "own", "bound"),
    [
        (gate(seen=(1.0, 2.0, 1e8)), 10.0, 6.0),  # three times the median
        (gate(seen=(0.1, 0.2, 0.3)), 100.0, 10.0),  # a tenth of the own norm
        (gate(seen=(1.0, 2.0)), 10.0, 30.0),  # too few partners: three times the own norm
        (gate(), 0.0, 0.0),  # nothing is known: any
        (gate(seen=(1.0, 2.0, 4.0), factor=1.0), 0.0, 2.0),
        (gate(seen=(1.0, 2.0, 4.0), factor=0.0), 10.0, 0.0),
        (gate(Kind.SIGNED, seen=(1.0, 2.0, 4.0)), 10.0, 10.0),
        (gate(Kind.COUNTER, seen=(1.0, 2.0, 4.0)), 10.0, 0.0),
    ],
)
def test_bounds(made: Gate, own: float, bound: float) -> None:
    assert made.limit(0).bound(own) == pytest.approx(bound)


def test_in_a_part_of_a_block_only_gross_values_count_less() -> None:
    made = gate(seen=(0.1, 0.2, 0.3))
    assert made.limit(0, part=True) == Limit(0.0, 3.0, 3.0)
    assert gate(Kind.SIGNED, seen=(0.1, 0.2, 0.3)).limit(0, part=True) == Limit(0.0, 30.0, 30.0)
    assert gate(factor=0.0).limit(0, part=True) == UNLIMITED


def test_one_partner_cannot_move_the_median_however_often_it_asks() -> None:
    made = gate(seen=(1.0, 2.0, 3.0))
    for _ in range(1000):
        made.saw("bad", 0, Difference(1e16))
    assert made.limit(0).norm == pytest.approx(7.5)


@pytest.mark.parametrize(
    ("distance", "counts"),
    [(0.0, 0.0), (2.0, 2.0), (3.0, 3.0), (6.0, 3.0), (20.0, 3.0), (40.0, 1.5), (6000.0, 0.01), (1e100, 0.0)],
)
def test_beyond_the_bound_a_difference_counts_no_more_and_gross_values_the_less_the_further(
    distance: float, counts: float
) -> None:
    scale = Limit(3.0, gross=10.0).scale(distance**2, torch.full((4,), 1.0))
    assert distance * scale == pytest.approx(counts)


def test_who_is_beyond_again_and_again_is_far_until_it_is_not_or_gone() -> None:
    made = gate()
    for _ in range(STREAK):
        assert made.far == ()
        made.saw("1", 0, Difference(9.0, clipped=True))
    assert made.far == ("1",)
    made.saw("1", 0, Difference(1.0))
    assert made.far == ()
    for _ in range(STREAK):
        made.saw("2", 0, Difference(0.0, ("weight",)))
    assert made.far == ("2",)
    made.keep(("1",))
    assert made.far == ()


def plain(value: float) -> list[Plain]:
    return [Plain("weight", Kind.PARAMETER, torch.full((20,), value, dtype=torch.float64))]


def values(world: SwapWorld) -> torch.Tensor:
    return torch.stack([world.copy(node, Kind.PARAMETER) for node in world.nodes])


def test_halves_that_were_apart_merge_though_everybody_has_one_partner_of_three_across() -> None:
    """Each half is of one mind, so that the median is 0: the own norm's share alone brings them together; the mean is kept."""
    world = SwapWorld([plain(1.0 + (i >= 4)) for i in range(8)], graph="hypercube")
    for swapper in world.nodes.values():
        for block in range(3):
            for other in world.nodes:
                swapper.gate.saw(other, block, Difference(0.0))
    world.pace(1.0)
    world.run(2.0)
    assert sum(count for (name, _), count in world.metrics.snapshot().items() if name == "clipped") == 6
    assert float(values(world).max() - values(world).min()) > 0.9
    world.run(300.0)
    world.drain()
    assert float((values(world) - 1.5).abs().max()) < 1e-6
    assert sum(swapper.swaps.tally.moved for swapper in world.nodes.values()) == 0


def bad(world: SwapWorld, node: str, value: float) -> None:
    """From now on, this node sends `value`, as initiator and as responder."""
    shards = world.nodes[node].shards
    stage, answer = shards.stage, shards.answer

    def lies(out: torch.Tensor) -> None:
        out.view(torch.float64).fill_(value)

    def bad_stage(first: int, count: int, codec: object, out: torch.Tensor, *rest: object) -> tuple[str, ...]:
        stage(first, count, codec, out, *rest)  # type: ignore[arg-type]
        lies(out)
        return ()

    def bad_answer(
        index: int, data: torch.Tensor, codec: object, weight: float, out: torch.Tensor, *rest: object
    ) -> Difference:
        difference = answer(index, data, codec, weight, out, *rest)  # type: ignore[arg-type]
        lies(out)
        return difference

    shards.stage, shards.answer = bad_stage, bad_answer  # type: ignore[method-assign]


@pytest.mark.parametrize("value", [1e8, math.nan, math.inf])
def test_gross_values_do_not_get_through_and_their_sender_is_named(value: float) -> None:
    world = SwapWorld([plain(1.0 + 0.1 * i) for i in range(6)])
    bad(world, "5", value)
    world.pace(1.0)
    world.run(200.0)
    honest = values(world)[:5]
    assert float((honest - 1.2).abs().max()) < 0.05
    assert {node for swapper in world.nodes.values() for node in swapper.far} == {"5"}
    assert sum(swapper.swaps.tally.moved for swapper in world.nodes.values()) > 10, "its answers, dropped or clipped"


def test_without_the_gate_they_would() -> None:
    world = SwapWorld([plain(1.0 + 0.1 * i) for i in range(6)], algorithm="async:clip=0")
    bad(world, "5", 1e8)
    world.pace(1.0)
    world.run(10.0)
    assert float(values(world)[:5].abs().max()) > 1e6


def test_an_honest_answer_keeps_what_the_request_asked_for() -> None:
    world = SwapWorld([plain(1.0), plain(2.0)])
    gate = world.nodes["0"].gate
    for block in range(3):
        for other in "abc":
            gate.saw(other, block, Difference(0.0))
    world.nodes["0"].swaps.pace = 10.0
    world.arm("0")
    world.run(5.0)
    [ask] = [m for *_, m in world.log if isinstance(m, Ask)]
    assert ask.bounds == pytest.approx([0.1 * 8**0.5, 0.1 * 8**0.5, 0.1 * 4**0.5])
    assert [m.accepted for *_, m in world.log if isinstance(m, Answer)] == [0b111]
    moved = values(world)
    assert float(moved[0][0]) == pytest.approx(1.0 + 0.5 * 0.1)  # a difference of 1 is 10 bounds: one of them counts
    assert float(moved.mean()) == pytest.approx(1.5, abs=1e-12)


def test_what_pushes_count_in_full_is_much_more() -> None:
    assert Gate([Kind.PARAMETER], 3.0, PUSHED).limit(0).bound(1.0) == 10.0
