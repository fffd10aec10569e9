"""The rules that bear bad neighbours, against numpy, and through the shards and a round's specs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import optim
from optim import Kind
from optim.codec import RAW
from optim.robust import RULES, Rule
from p2p.state.shards import Part, Shards
from tests.simulation.swap_world import Plain
from topology import SpecError

OWN = np.array([0.0, 0.0])
OTHERS = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 4.0], [-60.0, 80.0]])  # at distances 1, 2, 5, 100


def numpy_nearest(own: np.ndarray, others: np.ndarray, bad: int) -> np.ndarray:
    order = np.argsort(np.linalg.norm(others - own, axis=1))
    return np.mean([own, *others[order[: len(others) - bad]]], axis=0)


def numpy_clipped(own: np.ndarray, others: np.ndarray, bad: int) -> np.ndarray:
    distances = np.linalg.norm(others - own, axis=1)
    radius = np.sort(distances)[::-1][bad]
    return own + sum(0.2 * (y - own) * min(1.0, radius / d) for y, d in zip(others, distances, strict=True))


def numpy_trimmed(own: np.ndarray, others: np.ndarray, bad: int) -> np.ndarray:
    return np.mean([own, *np.sort(others, axis=0)[bad : len(others) - bad]], axis=0)


ORACLES = {"nearest": numpy_nearest, "clipped": numpy_clipped, "trimmed": numpy_trimmed}


def apply(rule: Rule, own: np.ndarray, others: np.ndarray, bad: int) -> np.ndarray:
    out = torch.empty(own.shape[0], dtype=torch.float64)
    rule(torch.tensor(own), 0.2, [(0.2, torch.tensor(y)) for y in others], bad, out)
    return out.numpy()


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("bad", [0, 1])
def test_rules_are_numpys(name: str, bad: int) -> None:
    rng = np.random.default_rng(0)
    for own, others in [(OWN, OTHERS), *((rng.normal(size=7), rng.normal(size=(4, 7))) for _ in range(20))]:
        np.testing.assert_allclose(apply(RULES[name], own, others, bad), ORACLES[name](own, others, bad), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "expected"), [("nearest", [1.0, 1.5]), ("clipped", [0.2 * (4 - 3), 0.2 * (6 + 4)]), ("trimmed", [1 / 3, 2.0])]
)
def test_literal(name: str, expected: list[float]) -> None:
    assert apply(RULES[name], OWN, OTHERS, 1).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("name", RULES)
def test_gross_values_do_no_harm_and_overflow_nowhere(name: str) -> None:
    """A trimmed mean as a sum less its extremes would lose every digit here."""
    others = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [3e38, -3e38]])
    mixed = apply(RULES[name], np.array([1.0, 1.0]), others, 1)
    assert np.abs(mixed - 1.0).max() < 1e-12


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("count", [0, 1])
def test_with_no_more_neighbours_than_may_be_bad_a_node_keeps_its_own(name: str, count: int) -> None:
    assert apply(RULES[name], OWN + 1, OTHERS[:count], 1).tolist() == [1.0, 1.0]


def test_without_bad_ones_nearest_is_the_weighted_mean() -> None:
    out = torch.empty(1, dtype=torch.float64)
    others = [(0.3, torch.tensor([2.0], dtype=torch.float64)), (0.2, torch.tensor([5.0], dtype=torch.float64))]
    RULES["nearest"](torch.tensor([1.0], dtype=torch.float64), 0.5, others, 0, out)
    assert out.item() == pytest.approx(0.5 + 0.6 + 1.0)


def test_shards_combine_by_a_rule_and_leave_out_what_is_not_finite() -> None:
    kept = torch.zeros(2, dtype=torch.float64)
    shards = Shards([Plain("weight", Kind.PARAMETER, kept)], block_bytes=64, live=False)
    published = shards.publish(1)
    values = [*OTHERS, np.array([np.nan, 0.0])]
    parts = [Part(0.2, torch.tensor(y).view(torch.uint8), RAW, 1) for y in values]
    differences = shards.combine(0, 0.2, parts, published, RULES["trimmed"], 1)
    assert [difference.finite for difference in differences] == [True] * 4 + [False]
    assert kept.tolist() == pytest.approx([1 / 3, 2.0])


def test_specs() -> None:
    assert optim.make("gossip:robust=nearest,bad=2") == optim.Gossip(robust="nearest", bad=2)
    for spec in ("gossip:robust=krum", "gossip:bad=-1", "gossip:robust=nearest,overlap=yes", "gossip:clip=-1", "async:clip=-1"):
        with pytest.raises(SpecError):
            optim.make(spec)
