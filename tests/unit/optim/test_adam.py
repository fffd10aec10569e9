"""The two Adams against numpy, and against torch's where they are the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from optim import AccumAdam, SwarmAdam
from optim.kinds import Kind, slots
from topology import SpecError

Array = npt.NDArray[np.float64]
START: Array = np.linspace(-1, 1, 5)
GRADIENTS: list[Array] = [np.random.default_rng(i).normal(size=5) for i in range(13)]
LR, B1, B2, EPS = 0.01, 0.9, 0.999, 1e-8


def trained(
    make: type[SwarmAdam] | type[AccumAdam] | type[torch.optim.AdamW], gradients: Sequence[Array], **more: float
) -> Array:
    p = nn.Parameter(torch.from_numpy(START.copy()))
    optimizer = make([p], lr=LR, **more)  # type: ignore[arg-type]
    for g in gradients:
        p.grad = torch.from_numpy(g.copy())
        optimizer.step()
    return p.detach().numpy()


def swarm_adam(gradients: Sequence[Array], sign: float) -> Array:
    x, m, v = START.copy(), np.zeros(5), np.zeros(5)
    for t, g in enumerate(gradients, 1):
        m = B1 * m + sign * (1 - B1) * g
        mean = m / (1 - B1**t)
        v = B2 * v + (1 - B2) * mean**2
        x = x - LR * mean / (np.sqrt(v / (1 - B2**t)) + EPS)
    return x


def accum_adam(gradients: Sequence[Array], every: int, sign: float) -> Array:
    """Moments stored decayed: m = b1 M."""
    x, m, v, total = START.copy(), np.zeros(5), np.zeros(5), np.zeros(5)
    for t, g in enumerate(gradients, 1):
        total = total + g / every
        k = (t + every - 1) // every
        now, square = m + sign * (1 - B1) * g, v + (1 - B2) * g**2
        x = x - LR * (now / (1 - B1**k)) / (np.sqrt(square) / np.sqrt(1 - B2**k) + EPS)
        if t % every == 0:
            m, v = B1 * (m + (1 - B1) * total), B2 * (v + (1 - B2) * total**2)
            total = np.zeros(5)
    return x


def test_swarm_adam_is_its_recursion() -> None:
    np.testing.assert_allclose(trained(SwarmAdam, GRADIENTS), swarm_adam(GRADIENTS, 1.0), rtol=0, atol=1e-12)
    assert np.abs(trained(SwarmAdam, GRADIENTS) - swarm_adam(GRADIENTS, -1.0)).max() > 1e-3


@pytest.mark.parametrize("every", [1, 3, 4])
def test_accum_adam_is_its_recursion(every: int) -> None:
    np.testing.assert_allclose(
        trained(AccumAdam, GRADIENTS, every=every), accum_adam(GRADIENTS, every, 1.0), rtol=0, atol=1e-12
    )
    assert np.abs(trained(AccumAdam, GRADIENTS, every=every) - accum_adam(GRADIENTS, every, -1.0)).max() > 1e-3


def test_accum_adam_of_single_steps_is_adamw() -> None:
    expected = trained(torch.optim.AdamW, GRADIENTS, weight_decay=0.1)
    np.testing.assert_allclose(trained(AccumAdam, GRADIENTS, every=1, weight_decay=0.1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [SwarmAdam, AccumAdam])
def test_their_state_is_in_the_table(make: type[SwarmAdam] | type[AccumAdam]) -> None:
    p = nn.Parameter(torch.ones(3))
    optimizer = make([p])
    p.grad = torch.ones(3)
    optimizer.step()
    named = slots(optimizer, optimizer.param_groups[0])
    assert named is not None
    assert {slot.key for slot in named} == set(optimizer.state[p])
    assert {slot.key: slot.kind for slot in named}["exp_avg_sq"] is Kind.NONNEGATIVE


def test_a_closure_gives_the_loss() -> None:
    p = nn.Parameter(torch.ones(3))
    optimizer = SwarmAdam([p])

    def closure() -> float:
        loss = p.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    assert optimizer.step(closure) == 3.0
    assert p[0] < 1


@pytest.mark.parametrize("settings", [{"lr": -1.0}, {"betas": (1.0, 0.9)}, {"every": 0}])
def test_settings_that_cannot_be_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        AccumAdam([nn.Parameter(torch.ones(1))], **settings)
