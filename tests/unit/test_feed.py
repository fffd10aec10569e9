"""What a node gives its trainer to read: one node alone, over its own agent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import p2p
from p2p.config import TEST
from p2p.errors import ClosedError, ConfigError, StateError

LENGTH = 100


class Trainer:
    """A node, its optimizer, and what was seen."""

    def __init__(self) -> None:
        model = nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        self.node = p2p.join(model, self.optimizer, listen="tcp://127.0.0.1:0", config=TEST)

    def train(self, loader: DataLoader[int], steps: int | None = None) -> list[int]:
        seen: list[int] = []
        for number, batch in enumerate(loader, 1):
            seen += batch.tolist()
            self.optimizer.step()
            if number == steps:
                break
        return seen


@pytest.fixture
def trainers() -> Iterator[list[Trainer]]:
    made = [Trainer(), Trainer()]
    yield made
    for trainer in made:
        trainer.node.close()


def loader(trainer: Trainer, **options: object) -> DataLoader[int]:
    sampler = trainer.node.sampler(range(LENGTH), chunk=10)
    return DataLoader(range(LENGTH), batch_size=8, sampler=sampler, **options)  # type: ignore[arg-type]


def test_epochs_are_numbered_and_whole(trainers: list[Trainer]) -> None:
    trainer = trainers[0]
    data = loader(trainer)
    found = {epoch: trainer.train(data) for epoch in trainer.node.epochs(3)}
    assert list(found) == [0, 1, 2]
    assert all(sorted(seen) == list(range(LENGTH)) for seen in found.values())
    assert trainer.node.epoch == 3
    assert list(trainer.node.epochs(3)) == []


def test_the_samples_of_a_step_are_told_to_partners(trainers: list[Trainer]) -> None:
    """Where `weight=samples`, mixing follows them."""
    trainer = trainers[0]
    data = loader(trainer)
    seen = sum(len(trainer.train(data)) for _ in trainer.node.epochs(1))
    exchange = trainer.node._agent.exchange
    assert exchange is not None
    deadline = time.monotonic() + 10
    while exchange.pace.pulse.step < trainer.node.step_count and time.monotonic() < deadline:
        time.sleep(0.01)
    steps = trainer.node.step_count
    found = exchange.pace.pulse.samples
    assert (seen - 8) / steps <= found <= seen / (steps - 1), "those of the first or last step may be heard of later"


def test_two_samplers_share_an_epochs_number(trainers: list[Trainer]) -> None:
    trainer = trainers[0]
    data, held_out = loader(trainer), loader(trainer)
    for epoch in trainer.node.epochs(2):
        assert sorted(trainer.train(data)) == sorted(trainer.train(held_out)) == list(range(LENGTH))
        assert trainer.node.epoch == epoch + 1


def test_what_is_broken_off_in_the_last_epoch_comes_again(trainers: list[Trainer]) -> None:
    trainer = trainers[0]
    data = loader(trainer)
    seen: list[int] = []
    numbers = []
    for epoch in trainer.node.epochs(1):
        numbers.append(epoch)
        seen += trainer.train(data, steps=5)
    assert numbers == [0, 0, 0]
    assert sorted(seen) == list(range(LENGTH))


def test_an_ordinary_loop_counts_epochs_too(trainers: list[Trainer]) -> None:
    trainer = trainers[0]
    data = loader(trainer)
    for epoch in range(2):
        assert sorted(trainer.train(data)) == list(range(LENGTH))
        assert trainer.node.epoch == epoch + 1


def test_samplers_go_on_from_the_states_of_a_checkpoint_in_order(trainers: list[Trainer]) -> None:
    first, again = trainers
    seen = first.train(loader(first), steps=4)
    loader(first)
    again.node._feed.resumed = json.loads(json.dumps(first.node._feed.state()))
    data, fresh = loader(again), loader(again)
    assert sorted(seen + again.train(data)) == list(range(LENGTH))
    assert sorted(again.train(fresh)) == list(range(LENGTH))


def test_the_state_of_other_data_is_refused(trainers: list[Trainer]) -> None:
    first, again = trainers
    loader(first)
    again.node._feed.resumed = first.node._feed.state()
    with pytest.raises(StateError, match="length 100; here it is 60"):
        again.node.sampler(range(60), chunk=10)


def test_what_cant_be_read(trainers: list[Trainer]) -> None:
    node = trainers[0].node
    with pytest.raises(ConfigError, match=r"no length.*use node\.stream"):
        node.sampler(iter([1]))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="split is 'random'"):
        node.sampler(range(9), split="random")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="labels="):
        node.sampler(range(9), split="sorted")


def test_batches_and_streams_of_a_node_alone(trainers: list[Trainer]) -> None:
    trainer = trainers[0]
    batches = trainer.node.batches(range(LENGTH), "global:40", micro=25, chunk=10)
    assert [len(batch) for batch in batches] == [20, 20, 20, 20, 20]
    assert list(trainer.node.stream(range(5))) == list(range(5))


def test_nothing_is_drawn_from_a_node_that_has_left(trainers: list[Trainer]) -> None:
    trainer = trainers[0]
    data = loader(trainer)
    trainer.node.close()
    with pytest.raises(ClosedError):
        next(iter(data))
