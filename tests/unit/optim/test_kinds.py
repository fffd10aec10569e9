"""The table of kinds against what the real optimizers keep."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from optim.kinds import Kind, lay_out, slots

CASES: list[tuple[type[Optimizer], dict[str, Any]]] = [
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.Adam, {"fused": True}),
    (torch.optim.Adam, {"foreach": True}),
    (torch.optim.AdamW, {}),
    (torch.optim.AdamW, {"amsgrad": True, "fused": True}),
    (torch.optim.NAdam, {}),
    (torch.optim.RAdam, {}),
    (torch.optim.Adamax, {}),
    (torch.optim.RMSprop, {}),
    (torch.optim.RMSprop, {"momentum": 0.9}),
    (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
    (torch.optim.Adagrad, {}),
    (torch.optim.Adadelta, {}),
    (torch.optim.Muon, {}),
]


def parameter() -> nn.Parameter:
    return nn.Parameter(torch.linspace(-1, 1, 6).view(2, 3))


def step(optimizer: Optimizer, p: Tensor) -> None:
    p.grad = torch.linspace(1, 2, 6).view(2, 3)
    optimizer.step()


@pytest.mark.parametrize(("cls", "settings"), CASES)
def test_the_table_names_exactly_what_the_optimizer_keeps(cls: Any, settings: dict[str, Any]) -> None:
    p = parameter()
    optimizer = cls([p], **settings)
    step(optimizer, p)
    named = slots(optimizer, optimizer.param_groups[0])
    assert named is not None
    kept = {key: value for key, value in optimizer.state[p].items() if value is not None}
    assert {s.key for s in named} == set(kept)
    for slot in named:
        assert kept[slot.key].shape == (() if slot.scalar else p.shape)
        assert slot.kind is not Kind.NONNEGATIVE or (kept[slot.key] >= 0).all()


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
@pytest.mark.parametrize(("cls", "settings"), CASES)
def test_laid_out_state_is_what_the_first_step_would_make(cls: Any, settings: dict[str, Any], default: torch.dtype) -> None:
    torch.set_default_dtype(default)
    try:
        p, q = parameter(), parameter()
        real, laid = cls([p], **settings), cls([q], **settings)
        step(real, p)
        lay_out(laid, q)
    finally:
        torch.set_default_dtype(torch.float32)
    for key, value in laid.state[q].items():
        expected = real.state[p][key]
        assert (value.shape, value.dtype, value.device, value.stride()) == (
            expected.shape, expected.dtype, expected.device, expected.stride()
        )  # fmt: skip


@pytest.mark.parametrize(("cls", "settings"), CASES)
def test_a_step_after_laying_out_equals_one_after_load_state_dict(cls: Any, settings: dict[str, Any]) -> None:
    """Whatever is written into the laid-out state, the optimizer goes on from it as from a loaded state."""
    p, q = parameter(), parameter()
    first, second = cls([p], **settings), cls([q], **settings)
    for _ in range(3):
        step(first, p)
    with torch.no_grad():
        q.copy_(p)
    lay_out(second, q)
    for key, value in second.state[q].items():
        value.copy_(first.state[p][key])
    loaded_p = nn.Parameter(p.detach().clone())
    loaded = cls([loaded_p], **settings)
    loaded.load_state_dict(copy.deepcopy(first.state_dict()))
    step(second, q)
    step(loaded, loaded_p)
    assert torch.equal(q, loaded_p)


def test_lay_out_keeps_what_is_there() -> None:
    p = parameter()
    optimizer = torch.optim.Adam([p])
    step(optimizer, p)
    before = {key: (value, value.clone()) for key, value in optimizer.state[p].items()}
    lay_out(optimizer, p)
    for key, value in optimizer.state[p].items():
        assert value is before[key][0]
        assert torch.equal(value, before[key][1])


def test_groups_may_differ() -> None:
    optimizer = torch.optim.SGD([{"params": [parameter()], "momentum": 0.9}, {"params": [parameter()]}], lr=0.1)
    assert [len(slots(optimizer, group) or ()) for group in optimizer.param_groups] == [1, 0]


def test_the_centered_rmsprop_shares_no_moment_of_the_gradient() -> None:
    optimizer = torch.optim.RMSprop([parameter()], centered=True)
    shared = {s.key for s in slots(optimizer, optimizer.param_groups[0]) or () if s.kind is not None}
    assert shared == {"step"}


def test_an_unknown_optimizer_has_no_slots() -> None:
    class Own(torch.optim.SGD):
        pass

    for optimizer in (Own([parameter()], lr=0.1), torch.optim.Rprop([parameter()])):
        assert slots(optimizer, optimizer.param_groups[0]) is None


def test_lbfgs_is_known_and_shares_nothing() -> None:
    optimizer = torch.optim.LBFGS([parameter()])
    assert slots(optimizer, optimizer.param_groups[0]) == ()


def test_numbers_that_travel() -> None:
    assert {k.name: k.value for k in Kind} == {
        "PARAMETER": 0, "GRADIENT": 1, "BUFFER": 2, "SIGNED": 3, "NONNEGATIVE": 4, "COUNTER": 5, "NEWEST": 6, "RESIDUAL": 7,
        "MOMENTS": 8
    }  # fmt: skip
    assert {k for k in Kind if not k.linear} == {Kind.NONNEGATIVE, Kind.COUNTER, Kind.NEWEST, Kind.MOMENTS}
