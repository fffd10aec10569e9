"""Names, parameters, costs and triggers of algorithms; what a user's own needs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import optim
from optim import Algorithm, Step, Vector
from p2p.errors import ConfigError, StateError
from p2p.state import Method
from topology import SpecError


@pytest.mark.parametrize("name", optim.names())
def test_every_name_makes_one_that_says_its_name(name: str) -> None:
    assert optim.spec_of(optim.make(name)) == name


@pytest.mark.parametrize(
    ("spec", "payloads", "vectors"),
    [
        ("async", 1, 1),
        ("async:momentum=shared", 1, 0),
        ("async:momentum=quasi-global", 1, 2),
        ("gossip", 1, 0),
        ("local:period=16", 1, 0),
        ("slowmo", 1, 2),
        ("elastic", 1, 1),
        ("diloco", 1, 2),
        ("palsgd", 1, 2),
        ("oldsgd", 1, 0),
        ("aged", 1, 0),
        ("progressive", 1, 0),
        ("line-search", 1, 2),
        ("pso", 1, 3),
        ("od-sgd", 1, 1),
        ("pga", 1, 0),
        ("relay-sum", 1, 0),
        ("block-cyclic", 1, 0),
        ("dreamddp", 1, 0),
        ("extra", 1, 3),
        ("d2", 1, 2),
        ("decentlam", 1, 2),
        ("gradient-tracking", 2, 2),
        ("momentum-tracking", 2, 3),
        ("gradient-gossip", 2, 1),
        ("push-sum", 1, 0),
    ],
)
def test_what_they_cost(spec: str, payloads: int, vectors: int) -> None:
    algorithm = optim.make(spec)
    assert (algorithm.payloads, sum(not vector.scalar for vector in algorithm.vectors())) == (payloads, vectors)


@pytest.mark.parametrize(
    "spec", ["gossip:period=4,switch=100", "async:partners=random,target=0.9", "slowmo:alpha=0.5", "gossip:clip=0"]
)
def test_specs_come_back(spec: str) -> None:
    assert optim.make(optim.spec_of(optim.make(spec))) == optim.make(spec)


@pytest.mark.parametrize(
    "spec",
    [
        "local:period=0",
        "local:switch=-1",
        "gossip:momentum=slow",
        "gossip:ema=1",
        "aged:power=-1",
        "line-search:tries=0",
        "gosip",
        "push-sum:period=x",
        "pga:every=0",
        "pga:overlap=yes",
        "od-sgd:overlap=no",
        "od-sgd:local=-1",
        "block-cyclic:groups=0",
        "dreamddp:switch=3",
        "block-cyclic:momentum=quasi-global",
        "relay-sum:robust=nearest",
    ],
)
def test_what_cannot_be_is_refused(spec: str) -> None:
    with pytest.raises(SpecError):
        optim.make(spec)


@pytest.mark.parametrize(
    ("spec", "due"),
    [
        ("gossip", "xxxxxxxx"),
        ("local:period=3", "..x..x.."),
        ("local:period=3,switch=2", "xx..x..x"),
        ("slowmo:period=4", "...x...x"),
    ],
)
def test_triggers(spec: str, due: str) -> None:
    method = made(optim.make(spec))
    seen = ""
    for step in range(1, 9):
        method.before(step, 0.0)
        seen += "x" if method.due else "."
        method.after()
        method.mixed(step, 0, 1)
    assert seen == due


@optim.register("test-counter")
@dataclass(frozen=True)
class Counter(optim.Synchronous):
    """Writes down what it is given."""

    def vectors(self) -> tuple[Vector, ...]:
        return Vector("seen", shared=True), Vector("own")

    def before(self, s: Step) -> None:
        torch._foreach_add_(s["own"], 1.0)
        torch._foreach_add_(s.g, s.lr)


def made(algorithm: Algorithm, **settings: float) -> Method:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(
        [{"params": [model.weight], "lr": 0.5}, {"params": [model.bias], "lr": 0.25}],
        lr=1.0,
        **settings,  # type: ignore[arg-type]
    )
    return Method(algorithm, model, [optimizer])


def test_a_users_own_is_made_by_its_name_and_by_its_module() -> None:
    assert optim.make("test-counter:period=2") == Counter(period=2)
    assert optim.make("examples.custom_algorithm:Diverse:keep=0.5").payloads == 1


def test_its_vectors_are_beside_each_parameter_and_the_shared_ones_travel() -> None:
    method = made(Counter())
    shared = [source for source in method.sources if source.name.startswith("algorithm.")]
    assert {source.name: source.shape for source in shared} == {
        "algorithm.weight.seen": (1, 2),
        "algorithm.bias.seen": (1,),
    }
    method.before(1, 0.0)
    assert all((own == 1).all() for own in method.local().values())


def test_each_group_has_its_own_rate_and_missing_gradients_are_zeros() -> None:
    model = nn.Linear(2, 1)
    groups = [{"params": [model.weight], "lr": 0.5}, {"params": [model.bias], "lr": 0.25}]
    method = Method(Counter(), model, [torch.optim.SGD(groups, lr=1.0)])
    method.before(1, 0.0)
    assert model.weight.grad is not None and (model.weight.grad == 0.5).all()
    assert model.bias.grad is not None and (model.bias.grad == 0.25).all()


def test_an_algorithm_with_vectors_follows_one_optimizer() -> None:
    model = nn.Linear(2, 1)
    optimizers = [torch.optim.SGD([p], lr=0.1) for p in model.parameters()]
    with pytest.raises(ConfigError, match="follows one optimizer"):
        Method(Counter(), model, optimizers)


def test_scaled_gradients_are_refused() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = Method(Counter(), model, [optimizer])
    optimizer.grad_scale = torch.ones(())  # type: ignore[attr-defined]  # as GradScaler does with fused ones
    with pytest.raises(StateError, match="without fused"):
        method.before(1, 0.0)


@pytest.mark.parametrize("how", ["changed", "lost"])
def test_corrections_begin_anew_after_the_round_that_was_agreed_on(how: str) -> None:
    method = made(optim.GradientTracking())
    corrections = [tensor for name, tensor in method.local().items() if name.startswith("rest")]
    for round in range(1, 9):
        method.before(round, 0.0)
        method.after()
        for tensor in corrections:
            tensor.fill_(1.0)
        if round == 2 and how == "changed":
            method.changed(round, members=4)
        method.mixed(round, int(round >= 2 and how == "lost"), 4)
        assert all((tensor == 0).all() for tensor in corrections) == (round == 6)


def test_who_goes_on_from_anothers_state_keeps_nothing_of_its_own() -> None:
    method = made(optim.MomentumTracking(period=3))
    method.changed(1, members=4)  # heard before the first exchange: nothing to begin anew
    for step in range(1, 6):
        method.before(step, 0.0)
        method.after()
        method.mixed(step, 0, 4)
    for tensor in method.local().values():
        tensor.fill_(1.0)
    method.changed(5, members=4)
    method.enter()
    assert all((tensor == 0).all() for tensor in method.local().values())
    method.after()
    assert float(method._anew) == 0.0, "what the own past proposed is no news"
    dues = []
    for step in range(6, 9):
        method.before(step, 0.0)
        dues.append(method.due)
        method.after()
        method.mixed(step, 0, 4)
    assert dues == [False, False, True], "a period begins here"
