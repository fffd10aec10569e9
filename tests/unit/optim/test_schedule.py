"""The plan of DreamDDP against every plan there is."""

from __future__ import annotations

import random
from itertools import accumulate, product

import pytest

from optim.schedule import schedule, waiting

LAYERS, PERIOD = 7, 3


def total(steps: tuple[int, ...], costs: list[float], ready: list[float], seconds: float) -> float:
    held = [[layer for layer, step in enumerate(steps) if step == k] for k in range(PERIOD)]
    return sum(waiting(layers, costs, ready, seconds) for layers in held)


def profile(seed: int) -> tuple[list[float], list[float], float]:
    """Backward times about alike, transfers very unlike: from half of what hides in a period to twice that."""
    rng = random.Random(seed)
    backward = [rng.uniform(0.5, 1.5) for _ in range(LAYERS)]
    costs = [rng.lognormvariate(0.0, 1.0) for _ in range(LAYERS)]
    scale = [0.5, 0.7, 0.9, 1.2, 2.0][seed % 5] * PERIOD * sum(backward) / sum(costs)
    return [cost * scale for cost in costs], list(accumulate(backward)), sum(backward)


@pytest.mark.parametrize("seed", [*range(9), 57])  # 57: longest first alone is 21 % off
@pytest.mark.parametrize("when", ["in the backward", "in the next step"])
def test_no_plan_waits_5_percent_less(seed: int, when: str) -> None:
    costs, ready, seconds = profile(seed)
    ready = ready if when == "in the backward" else [0.0] * LAYERS
    least = min(total(steps, costs, ready, seconds) for steps in product(range(PERIOD), repeat=LAYERS))
    found = schedule(costs, ready, seconds, PERIOD)
    assert total(tuple(found), costs, ready, seconds) <= 1.05 * least + 1e-9


def test_a_layer_waits_for_its_backward_and_for_those_before_it() -> None:
    costs, ready = [3.0, 1.0, 2.0], [1.0, 2.0, 6.0]
    assert waiting([0], costs, ready, 4.0) == 0.0
    assert waiting([1, 0], costs, ready, 4.0) == 1.0  # 1 + 3, then 1
    assert waiting([2, 1], costs, ready, 6.0) == 2.0
    assert waiting([], costs, ready, 6.0) == 0.0


def test_each_layer_once_a_period_and_everything_in_a_period_of_one_step() -> None:
    assert sorted(schedule([1.0] * 5, [0.0] * 5, 1.0, 5)) == [0, 1, 2, 3, 4]
    assert schedule([1.0, 2.0], [0.0, 0.0], 1.0, 1) == [0, 0]
    assert schedule([], [], 1.0, 3) == []
