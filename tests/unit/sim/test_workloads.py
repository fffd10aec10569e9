"""Workloads: seeded models, whole and disjoint shares, and that they can be learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from p2p.sim.workloads import TRAINING, Averaging, Digits, digits


def test_averaging_starts_apart_and_changes_nothing_by_itself() -> None:
    work = Averaging(size=64, seed=3)
    models = [work.model(node) for node in range(100)]
    vectors = torch.stack([model.value.detach().clone() for model in models])  # type: ignore[arg-type, operator]
    assert vectors.dtype == torch.float64
    assert float(vectors.std()) == pytest.approx(1.0, abs=0.05)
    assert float(vectors.mean(0).square().mean().sqrt()) == pytest.approx(0.1, abs=0.05)
    work.gradient(0, models[0])
    work.optimizer(models[0]).step()
    assert torch.equal(models[0].value, vectors[0])
    assert torch.equal(Averaging(size=64, seed=3).model(7).value, vectors[7])


@pytest.mark.parametrize("split", ["sorted", "shuffled", "dirichlet"])
@pytest.mark.parametrize("nodes", [1, 8, 30])
def test_shares_are_whole_and_disjoint(split: str, nodes: int) -> None:
    shares = Digits(nodes, split).shares  # type: ignore[arg-type]
    assert len(shares) == nodes
    assert all(len(share) for share in shares)
    assert sorted(np.concatenate(shares)) == list(range(TRAINING))


def test_sorted_shares_hold_few_labels_and_shuffled_ones_all() -> None:
    labels = digits()[1].numpy()
    assert max(len(set(labels[share])) for share in Digits(8, "sorted").shares) <= 3
    assert min(len(set(labels[share])) for share in Digits(8, "shuffled").shares) == 10


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_node_alone_learns_from_all_the_digits_and_the_same_each_time(name: str) -> None:
    def trained() -> float:
        work = Digits(1, optimizer_name=name)  # type: ignore[arg-type]
        model = work.model(0)
        optimizer = work.optimizer(model)
        for _ in range(150):
            work.gradient(0, model)
            optimizer.step()
        return work.score(model)

    assert trained() > 0.93
    assert trained() == trained()


def test_all_nodes_begin_with_the_same_weights_and_draw_different_batches() -> None:
    work = Digits(2)
    one, other = work.model(0), work.model(1)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    work.gradient(0, one)
    work.gradient(1, other)
    assert not torch.equal(one[0].weight.grad, other[0].weight.grad)  # type: ignore[index, arg-type]
