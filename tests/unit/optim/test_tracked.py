"""Tracked momentum: what others brought stays, whatever the optimizer; it fades as time passes, and leaves out what it must."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import optim
from optim.codec import RAW
from optim.kinds import Kind, first_moment
from p2p.state import Method
from p2p.state.checkpoint import Saved
from p2p.state.training import capture, groups, restore
from topology import SpecError

OPTIMIZERS: list[tuple[type[Optimizer], dict[str, Any]]] = [
    (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}),
    (torch.optim.SGD, {"lr": 0.01, "momentum": 0.8, "nesterov": True}),
    (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "dampening": 0.5}),
    (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "maximize": True}),
    (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "dampening": 1.0}),
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"maximize": True}),
    (torch.optim.AdamW, {}),
    (torch.optim.Adamax, {}),
    (torch.optim.NAdam, {}),
    (torch.optim.RAdam, {}),
    (torch.optim.Muon, {}),
    (optim.SwarmAdam, {}),
]


class Run:
    """One model of a (2, 3) weight in float64, and what the algorithm does around its steps."""

    def __init__(self, cls: Any, settings: dict[str, Any], forget: float = 0.0, dtype: torch.dtype = torch.float64) -> None:
        self.model = nn.Linear(3, 2, bias=False, dtype=dtype)
        with torch.no_grad():
            self.model.weight.copy_(torch.linspace(-1, 1, 6).view(2, 3))
        self.optimizer: Optimizer = cls(self.model.parameters(), **settings)
        self.method = Method(optim.Async(forget=forget), self.model, [self.optimizer])
        self.shards = self.method.shards(1024)
        self.steps = 0

    @property
    def moment(self) -> Tensor:
        slot = first_moment(self.optimizer, self.optimizer.param_groups[0])
        assert slot is not None
        moment: Tensor = self.optimizer.state[self.model.weight][slot.key]
        return moment

    @property
    def pull(self) -> Tensor:
        return self.method.local()["pull.0.0"]

    def step(self, brought: float = 0.0, span: float = 1.0) -> None:
        """A local step by the next of some gradients; then gossip adds `brought` to the first moment."""
        self.steps += 1
        weight = self.model.weight
        weight.grad = torch.linspace(-1, 2, 6, dtype=weight.dtype).view(2, 3) * (1 + 0.1 * self.steps)
        self.method.before(self.steps, 0.0, span)
        self.optimizer.step()
        self.method.after()
        if brought:
            self.bring(brought)
        self.shards.meet(self.steps)
        self.method.mixed(self.steps, 0, 2)

    def bring(self, change: float) -> None:
        """A swap adds to all of the first moment in the gossip copy."""
        for block in self.shards.blocks:
            kind, at = block.columns[0]
            if kind is Kind.SIGNED:
                data = torch.empty(block.elements, dtype=block.dtype)
                self.shards.read(block, data)
                data[at] = -change
                assert self.shards.settle(block.index, data.view(torch.uint8), RAW, 1.0, self.steps).finite


@pytest.mark.parametrize(("cls", "settings"), OPTIMIZERS)
def test_what_others_brought_stays(cls: Any, settings: dict[str, Any]) -> None:
    alone, visited = Run(cls, settings), Run(cls, settings)
    for brought in (0.0, 0.5, 0.0, -0.2, 0.0, 0.0):
        alone.step()
        visited.step(brought)
    assert torch.allclose(visited.pull, torch.full((2, 3), 0.3, dtype=torch.float64), atol=1e-12)
    if settings.get("dampening") != 1.0:  # no gradient ever reaches that moment
        assert torch.allclose(visited.moment - alone.moment, visited.pull, atol=1e-12)


def test_it_fades_as_time_passes_and_at_least_by_own_steps() -> None:
    run = Run(torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}, forget=0.1)
    run.step(brought=1.0)
    run.step()
    assert torch.allclose(run.pull, torch.full((2, 3), 0.9, dtype=torch.float64))
    run.step(span=5.0)
    assert torch.allclose(run.pull, torch.full((2, 3), 0.9**6, dtype=torch.float64))
    run.step(span=0.1)
    assert torch.allclose(run.pull, torch.full((2, 3), 0.9**7, dtype=torch.float64))


def test_in_a_run_that_is_resumed_nobody_holds_what_those_gave_who_are_gone() -> None:
    """The new members' d sum to 0 again: the one whose checkpoint it was has none, nor has who takes its state."""
    before, after = (Run(torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}) for _ in range(2))
    before.step(brought=1.0)
    tensors = dict((saved := capture(1, before.model, [before.optimizer], before.method, {})).optimizer)
    state = {**saved.state, "groups": groups([before.optimizer], tensors)}
    restore(Saved(1, saved.model, tensors, state), after.model, [after.optimizer], after.method)
    assert torch.equal(after.moment, before.moment), "the momentum is common, and kept"
    assert float(before.pull.abs().min()) == 1.0 and not after.pull.any()


def test_without_a_first_moment_that_averages_gradients_nothing_is_steered() -> None:
    for cls, settings in ((torch.optim.SGD, {"lr": 0.1}), (torch.optim.RMSprop, {"momentum": 0.9})):
        run = Run(cls, settings)
        run.step()
        assert list(run.method.local()) == ["fading.0.0"], "nor does it take memory"
        assert run.model.weight.grad is not None
        assert torch.equal(run.model.weight.grad, torch.linspace(-1, 2, 6, dtype=torch.float64).view(2, 3) * 1.1)


def test_a_parameter_without_gradient_is_left_alone() -> None:
    run = Run(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})
    run.step(brought=1.0)
    run.model.weight.grad = None
    run.method.before(2)
    assert run.model.weight.grad is None


def test_sums_of_small_changes_are_kept_in_32_bits() -> None:
    """What counts is what the model's dtype makes of a change: what is rounded away comes with a later one."""
    run = Run(torch.optim.SGD, {"lr": 0.0, "momentum": 0.9}, dtype=torch.bfloat16)
    run.step()
    before = run.moment.float()
    for _ in range(8):
        run.bring(2.0**-9)
        run.shards.meet(run.steps)
    assert run.pull.dtype == torch.float32
    assert torch.equal(run.pull, run.moment.float() - before)
    assert run.pull.max() >= 2.0**-6


def test_moments_that_pass_through_a_stand_in_are_counted_too() -> None:
    run, other = (Run(torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}) for _ in range(2))
    for each in (run, other):
        each.step()
    state = other.optimizer.state[other.model.weight]
    state["momentum_buffer"] = state["momentum_buffer"].t().contiguous().t()
    for brought in (0.5, 0.0, -0.2):
        run.step(brought)
        other.step(brought)
    assert not other.moment.is_contiguous()
    assert torch.equal(run.pull, other.pull)
    assert torch.equal(run.moment, other.moment)
    assert run.pull.any()


def test_blocks_that_gossip_left_alone_leave_it_exactly_as_it_is() -> None:
    run = Run(torch.optim.SGD, {"lr": 0.01, "momentum": 0.9})
    run.step(brought=1 / 3)
    pull = run.pull.clone()
    for _ in range(5):
        run.step()
    assert torch.equal(run.pull, pull)


def test_what_a_member_handed_over_was_not_brought() -> None:
    run, donor = (Run(torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}) for _ in range(2))
    donor.step()
    for block in donor.shards.blocks:
        data = torch.empty(block.elements, dtype=block.dtype)
        donor.shards.read(block, data)
        run.shards.set_block(block.index, data.view(torch.uint8), RAW, 1)
    run.shards.apply()
    run.method.enter()
    assert torch.equal(run.moment, donor.moment)
    assert not run.pull.any()


def test_a_second_optimizer_goes_without_and_scaled_gradients_too() -> None:
    nets = [nn.Linear(2, 1, bias=False) for _ in range(2)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in nets]
    method = Method(optim.Async(), nn.ModuleList(nets), optimizers)
    assert list(method.local()) == ["pull.0.0", "fading.0.0"]
    method.local()["pull.0.0"].fill_(1.0)
    for net in nets:
        net.weight.grad = torch.zeros(1, 2)
    optimizers[0].grad_scale = torch.ones(())  # type: ignore[attr-defined]  # as GradScaler does with fused ones
    method.before(1)
    assert not any(net.weight.grad.any() for net in nets if net.weight.grad is not None)
    del optimizers[0].grad_scale  # type: ignore[attr-defined]
    method.before(2)
    assert nets[0].weight.grad is not None and nets[0].weight.grad.all()


@pytest.mark.parametrize("forget", [-0.1, 1.0])
def test_a_share_is_between_0_and_1(forget: float) -> None:
    with pytest.raises(SpecError, match="forget"):
        optim.Async(forget=forget)


def test_it_fades_in_few_passes_and_as_much_as_it_should() -> None:
    """By 1 % per step in every sixth, so that most steps leave d alone; and what waits is kept in checkpoints."""
    run = Run(torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}, forget=0.01)
    run.step(brought=1.0)
    seen = []
    for _ in range(60):
        run.step()
        seen.append(float(run.pull.mean()))
    assert len(set(seen)) == 11
    assert all(abs(value / 0.99**step - 1) < 0.052 for step, value in enumerate(seen, 1))
    assert seen[-1] * math.exp(float(run.method.local()["fading.0.0"])) == pytest.approx(0.99**61, rel=1e-9)
