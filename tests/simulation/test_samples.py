"""Mixing weights that follow the samples processed: who has more per step moves less, and the weighted mean is kept."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from optim import Kind
from p2p.agent.activity import RECENT, Pace
from tests.simulation.swap_world import SwapWorld, sources

SAMPLES = (16.0, 32.0, 128.0)


def mean(world: SwapWorld, kind: Kind, weights: tuple[float, ...]) -> Tensor:
    shares = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    return torch.stack([world.copy(node, kind) * share for node, share in zip(world.nodes, shares, strict=True)]).sum(0)


@pytest.mark.parametrize(
    ("algorithm", "samples", "weights"),
    [
        ("async:weight=samples", SAMPLES, SAMPLES),
        ("async", SAMPLES, (1.0, 1.0, 1.0)),
        ("async:weight=samples", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    ],
)
def test_all_agree_on_the_mean_that_is_kept(algorithm: str, samples: tuple[float, ...], weights: tuple[float, ...]) -> None:
    world = SwapWorld([sources(i) for i in range(3)], algorithm=algorithm)
    for swapper, count in zip(world.nodes.values(), samples, strict=True):
        swapper.pace.samples = count
    kinds = (Kind.PARAMETER, Kind.SIGNED)
    expected = {kind: mean(world, kind, weights) for kind in kinds}
    world.pace(1.0)
    world.run(60.0)
    world.drain()
    for kind in kinds:
        for node in world.nodes:
            assert torch.allclose(world.copy(node, kind), expected[kind], rtol=0, atol=1e-6)
        assert torch.allclose(mean(world, kind, weights), expected[kind], rtol=0, atol=1e-12)
    for node in world.nodes:
        assert (world.copy(node, Kind.NONNEGATIVE) >= 0).all()


def test_samples_per_step_are_a_moving_mean() -> None:
    pace = Pace()
    pace.worked(0)
    assert pace.samples == 0
    pace.worked(32)
    assert pace.pulse.samples == 32
    pace.worked(42)
    assert pace.samples == pytest.approx(37.0)
    for _ in range(RECENT):
        pace.worked(40)
    assert pace.samples == pytest.approx(40.0)
