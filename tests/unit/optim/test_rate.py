"""The effective learning rate: the own gradient against the swarm's mean one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

import optim
from p2p.state import Method
from p2p.state.method import LOOK

LR = 0.5


def rate(make: Callable[[nn.Module], Optimizer], gradient: Callable[[int], float], factor: float = 1.0) -> float:
    """What is seen after two looks, where others multiply the first moment by `factor` in each step."""
    model = nn.Linear(3, 2, bias=False)
    optimizer = make(model)
    method = Method(optim.Async(momentum="shared"), model, [optimizer])
    for step in range(1, 2 * LOOK + 2):
        model.weight.grad = torch.full((2, 3), gradient(step))
        method.before(step)
        optimizer.step()
        method.after()
        for key in ("momentum_buffer", "exp_avg"):
            if key in optimizer.state[model.weight]:
                optimizer.state[model.weight][key].mul_(factor)
        method.mixed(step, 0, 2)
    return method.rate


def sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=LR, momentum=0.5)


def adam(model: nn.Module) -> Optimizer:
    return torch.optim.Adam(model.parameters(), lr=LR, betas=(0.5, 0.9))


@pytest.mark.parametrize("make", [sgd, adam])
def test_where_all_pull_alike_it_is_the_learning_rate(make: Callable[[nn.Module], Optimizer]) -> None:
    assert rate(make, lambda step: 2.0) == pytest.approx(LR, rel=1e-6)


@pytest.mark.parametrize("make", [sgd, adam])
def test_where_gradients_contradict_each_other_it_is_small(make: Callable[[nn.Module], Optimizer]) -> None:
    """m is -1/3 of a gradient that changes its sign each time, as the next one finds it."""
    assert rate(make, lambda step: (-1.0) ** step) == pytest.approx(-LR / 3, rel=1e-6)


def test_what_others_bring_counts() -> None:
    """m <- 0.5 (0.5 m + g): 2/3 of the gradient, and (1 - momentum) of that."""
    assert rate(sgd, lambda step: 2.0, factor=0.5) == pytest.approx(LR / 3, rel=1e-6)


def test_without_a_first_moment_or_a_gradient_it_is_the_learning_rate() -> None:
    assert rate(lambda model: torch.optim.SGD(model.parameters(), lr=LR), lambda step: 2.0) == LR
    assert rate(sgd, lambda step: 0.0) == LR
