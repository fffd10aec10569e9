"""Numerators and weights: what is given and taken, and what the model becomes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from optim.codec import RAW
from p2p.state import collect
from p2p.state.mass import Mass


def made(value: float, *, momentum: float = 0.0) -> tuple[nn.Linear, torch.optim.Optimizer, Mass]:
    model = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(value)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    return model, optimizer, Mass(collect(model, [optimizer]), block_bytes=256)


def parcel(mass: Mass, share: float, index: int = 0) -> tuple[Tensor, float]:
    data = torch.empty(mass.blocks[index].nbytes, dtype=torch.uint8)
    return data, mass.give(index, share, RAW, data)


def test_two_that_give_each_other_a_half_have_the_mean() -> None:
    (one, _, first), (other, _, second) = made(1.0), made(3.0)
    for mass in (first, second):
        mass.absorb(weighted=False)
    (a, wa), (b, wb) = parcel(first, 0.5), parcel(second, 0.5)
    assert (wa, wb) == (0.5, 0.5)
    assert first.take(0, b, RAW, wb).squared == 2 * 2.0**2
    second.take(0, a, RAW, wa)
    for mass, model in ((first, one), (second, other)):
        mass.write()
        assert mass.weights[0] == 1.0
        assert (model.weight == 2.0).all()


def test_another_state_has_weight_one_whatever_there_was_before() -> None:
    model, _, mass = made(1.0)
    for take_over in ("donor", "checkpoint"):
        parcel(mass, 0.75)
        assert mass.weights == [0.25]
        if take_over == "donor":
            mass.set_block(0, torch.full((2,), 5.0, dtype=torch.float64).view(torch.uint8), RAW, 9)
            mass.apply()
        else:
            with torch.no_grad():
                model.weight.fill_(5.0)
            mass.retake()
        assert (mass.weights, bool((model.weight == 5.0).all())) == ([1.0], True)
        mass.take(0, torch.full((2,), 7.0, dtype=torch.float64).view(torch.uint8), RAW, 1.0)
        mass.write()
        assert (model.weight == 6.0).all()
        mass.weights = [1.0]


def test_a_local_update_counts_as_it_is_or_as_much_as_the_node_weighs() -> None:
    for weighted, expected in ((False, 1.0 + 0.4 / 0.25), (True, 1.4)):
        model, _, mass = made(1.0)
        mass.absorb(weighted=weighted)
        parcel(mass, 0.75)
        with torch.no_grad():
            model.weight.add_(0.4)
        mass.absorb(weighted=weighted)
        out = torch.empty(2, dtype=torch.float64)
        mass.read(mass.blocks[0], out)
        torch.testing.assert_close(out, torch.full((2,), expected, dtype=torch.float64))


def test_without_weight_the_model_stays_as_it_is() -> None:
    model, _, mass = made(1.5)
    mass.absorb(weighted=False)
    parcel(mass, 1.0)
    mass.write()
    assert mass.weights[0] == 0.0
    assert (model.weight == 1.5).all()


def test_what_is_not_finite_is_neither_taken_nor_absorbed() -> None:
    model, _, mass = made(1.0)
    bad = torch.full((2,), float("inf"), dtype=torch.float64).view(torch.uint8)
    assert mass.take(0, bad, RAW, 0.5).nonfinite == ("weight",)
    assert mass.weights[0] == 1.0
    with torch.no_grad():
        model.weight[0, 0] = float("nan")
    assert mass.absorb(weighted=False) == ("weight",)
    data, weight = parcel(mass, 0.5)
    assert torch.equal(data.view(torch.float64) / weight, torch.ones(2, dtype=torch.float64))


def test_momentum_is_mass_too_and_its_change_counts_as_much_as_it_weighs() -> None:
    model, optimizer, mass = made(1.0, momentum=0.9)
    model.weight.grad = torch.ones(1, 2, dtype=torch.float64)
    optimizer.step()
    mass.absorb(weighted=False)
    moments = next(b for b in mass.blocks if b.kind.name == "SIGNED")
    parcel(mass, 0.5, moments.index)
    optimizer.step()  # 1 -> 1.9
    mass.absorb(weighted=False)
    out = torch.empty(2, dtype=torch.float64)
    mass.read(moments, out)
    torch.testing.assert_close(out, torch.full((2,), 1.9, dtype=torch.float64))
