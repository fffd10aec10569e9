"""The trainer's side of one node: whatever the loop does, a swarm of one is bit-identical to plain torch."""

import asyncio
import copy
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import p2p
from p2p.errors import ClosedError, ConfigError, StateError

X, Y = torch.randn(8, 6, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
Make = Callable[[nn.Module], torch.optim.Optimizer]
Loop = Callable[[nn.Module, torch.optim.Optimizer], None]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PEERS", "SECRET", "LISTEN", "TOPOLOGY", "ALGORITHM", "WAIT_FOR", "RUN_DIR", "INDEX", "JOIN_TIMEOUT"):
        monkeypatch.delenv(f"STARLINGS_{name}", raising=False)
    yield
    gc.collect()


class Odd(nn.Module):
    """All that a model may hold: mixed dtypes, ties, empty, 0-d, strided and frozen tensors, buffers, and idle ones."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.first.weight
        self.norm = nn.BatchNorm1d(6)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.strided = nn.Parameter(torch.randn(6, 4).t())
        self.wide = nn.Parameter(torch.randn(4, 3, dtype=torch.float64))
        self.bf16 = nn.Parameter(torch.randn(3).bfloat16())
        self.fp16 = nn.Parameter(torch.randn(3).half())
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
        self.idle = nn.Parameter(torch.randn(5))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        x = self.norm(self.tied(torch.relu(self.first(x)))) * self.scale
        y = (x @ self.strided.t()).double() @ self.wide
        return y.float() + self.bf16.float() + self.fp16.float() + self.frozen


def mlp() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def half() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).half()


def loss_of(model: nn.Module) -> Tensor:
    dtype = next(model.parameters()).dtype
    return F.cross_entropy(model(X.to(dtype)).float(), Y)


def plain(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(6):
        step(model, optimizer)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def failing(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    plain(model, optimizer)
    raise ZeroDivisionError


def accumulating(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(4):
        optimizer.zero_grad()
        for _ in range(3):
            (loss_of(model) / 3).backward()
        optimizer.step()


def closing(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    def closure() -> float:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss.item()

    for _ in range(3):
        optimizer.step(closure)


def scheduled(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=8)
    for _ in range(6):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        scheduler.step()


def scaled(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The third step overflows and is skipped."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for i in range(6):
        optimizer.zero_grad()
        scaler.scale(loss_of(model) * (float("inf") if i == 2 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    moments = [s for state in optimizer.state.values() for s in state.values() if isinstance(s, Tensor)]
    return [*model.state_dict().values(), *moments]


def identical(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(left, right, strict=True))


OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.1),
    "momentum": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, amsgrad=True),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), lr=0.01),
    "adagrad": lambda m: torch.optim.Adagrad(m.parameters(), lr=0.01),
    "lbfgs": lambda m: torch.optim.LBFGS(m.parameters(), lr=0.1, max_iter=3),
    "fused": lambda m: torch.optim.Adam(m.parameters(), lr=0.01, fused=True),
}


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
@pytest.mark.parametrize(
    ("build", "optimizer", "loop"),
    [
        (mlp, "sgd", plain),
        (mlp, "momentum", plain),
        (mlp, "adam", plain),
        (mlp, "adamw", plain),
        (mlp, "rmsprop", plain),
        (mlp, "adagrad", plain),
        (mlp, "lbfgs", closing),
        (mlp, "momentum", scheduled),
        (mlp, "adam", accumulating),
        (mlp, "adam", scaled),
        (mlp, "fused", scaled),
        (half, "momentum", plain),
        (Odd, "sgd", plain),
        (Odd, "adam", plain),
    ],
)
def test_a_swarm_of_one_is_plain_torch(build: Callable[[], nn.Module], optimizer: str, loop: Loop, algorithm: str) -> None:
    alone, model = build(), build()
    expected, made = OPTIMIZERS[optimizer](alone), OPTIMIZERS[optimizer](model)
    loop(alone, expected)
    with p2p.join(model, made, algorithm=algorithm):
        loop(model, made)
    assert identical(state_of(alone, expected), state_of(model, made))


@pytest.mark.parametrize(("optimizer", "steps"), [("adam", 5), ("fused", 5)])
def test_a_step_that_the_scaler_skips_is_no_exchange(optimizer: str, steps: int) -> None:
    model = mlp()
    made = OPTIMIZERS[optimizer](model)
    with p2p.join(model, made) as node:
        scaled(model, made)
        assert node.last_step.step == steps


def test_a_compiled_model_shares_under_its_plain_names(tmp_path: Path) -> None:
    alone, model = mlp(), mlp()
    expected, made = OPTIMIZERS["momentum"](alone), OPTIMIZERS["momentum"](model)
    compiled = torch.compile(model, backend="eager")
    plain(alone, expected)
    with p2p.join(compiled, made) as node:
        plain(compiled, made)
        node.save(tmp_path / "model.safetensors")
        assert node.last_step.step == 6
    assert identical(state_of(alone, expected), state_of(model, made))
    assert set(load_file(tmp_path / "model.safetensors")) == set(alone.state_dict())
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    torch.compiler.reset()


def test_gossip_follows_the_first_of_several_optimizers() -> None:
    """A GAN: two nets, two optimizers, two steps a round."""
    alone, model = nn.ModuleDict({"g": mlp(), "d": half()}), nn.ModuleDict({"g": mlp(), "d": half()})

    def train(nets: nn.ModuleDict, g: torch.optim.Optimizer, d: torch.optim.Optimizer) -> None:
        for _ in range(3):
            plain(nets["d"], d)
            plain(nets["g"], g)

    def optimizers(nets: nn.ModuleDict) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
        return torch.optim.Adam(nets["g"].parameters(), lr=0.01), torch.optim.SGD(nets["d"].parameters(), 0.1, momentum=0.9)

    expected, made = optimizers(alone), optimizers(model)
    train(alone, *expected)
    with p2p.join(model, made) as node:
        train(model, *made)
        assert node.last_step.step == 18
    for i, net in enumerate(("g", "d")):
        assert identical(state_of(alone[net], expected[i]), state_of(model[net], made[i]))


class Own(torch.optim.SGD):
    """Unknown: a subclass may keep other state."""


def test_an_unknown_optimizer_keeps_its_state_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    model = mlp()
    with caplog.at_level(logging.WARNING, "starlings"), p2p.join(model, Own(model.parameters(), lr=0.1, momentum=0.9)) as node:
        assert "the state of Own stays local" in caplog.text
        assert node.address.startswith("tcp://127.0.0.1:")


def test_the_users_error_stays_the_users_and_the_node_leaves() -> None:
    model = mlp()
    optimizer = OPTIMIZERS["sgd"](model)
    node = p2p.join(model, optimizer)
    with pytest.raises(ZeroDivisionError), node:
        failing(model, optimizer)
    assert "starlings-agent" not in {thread.name for thread in threading.enumerate()}
    node.close()
    node.close()
    before = copy.deepcopy(model.state_dict())
    plain(model, optimizer)  # plain torch again
    assert not torch.equal(before["0.weight"], model.state_dict()["0.weight"])
    assert node.last_step.step == node.progress == 6


def test_after_leaving_what_needs_a_swarm_says_so() -> None:
    model = mlp()
    with p2p.join(model, OPTIMIZERS["sgd"](model)) as node:
        sampler = node.sampler(X)
    for call in (node.consensus, lambda: node.log(a=1.0), lambda: node.averaged().__enter__(), lambda: list(sampler)):
        with pytest.raises(ClosedError, match="left the swarm"):
            call()


def test_before_the_first_step_there_is_no_report() -> None:
    model = mlp()
    with p2p.join(model, OPTIMIZERS["sgd"](model)) as node, pytest.raises(StateError, match="no step was taken yet"):
        assert node.last_step


def test_averaged_holds_the_mean_and_gives_the_model_back() -> None:
    model = mlp()
    optimizer = OPTIMIZERS["adam"](model)
    with p2p.join(model, optimizer) as node:
        plain(model, optimizer)
        before = copy.deepcopy(state_of(model, optimizer))
        with node.averaged() as count:
            assert count == 1
            assert identical(before, state_of(model, optimizer))
            for call in (optimizer.step, node.consensus, lambda: node.averaged().__enter__()):
                with pytest.raises(StateError, match=r"inside node\.averaged"):
                    call()
            nn.init.zeros_(model[0].weight)
        assert identical(before, state_of(model, optimizer))
        plain(model, optimizer)


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_ema_holds_the_moving_average_and_gives_the_model_back(algorithm: str) -> None:
    model = mlp()
    optimizer = OPTIMIZERS["adam"](model)
    with p2p.join(model, optimizer, algorithm=f"{algorithm}:ema=0.5") as node:
        with pytest.raises(StateError, match="no"):
            node.ema().__enter__()
        path = []
        for _ in range(3):
            step(model, optimizer)
            path.append(copy.deepcopy(dict(model.named_parameters())))
        before = copy.deepcopy(state_of(model, optimizer))
        with node.ema():
            for key, value in model.named_parameters():
                torch.testing.assert_close(value, (path[0][key] + 2 * path[1][key] + 4 * path[2][key]) / 7)
            for call in (optimizer.step, lambda: node.averaged().__enter__(), lambda: node.ema().__enter__()):
                with pytest.raises(StateError, match=r"inside node\.ema"):
                    call()
            assert node.consensus().done
        assert identical(before, state_of(model, optimizer))


def test_without_a_decay_there_is_no_moving_average() -> None:
    model = mlp()
    with p2p.join(model, OPTIMIZERS["sgd"](model)) as node, pytest.raises(StateError, match="async:ema="):
        node.ema().__enter__()


def test_a_criterion_is_called_where_losses_are_compared() -> None:
    model, losses = mlp(), list[float]()
    optimizer = OPTIMIZERS["sgd"](model)
    with p2p.join(model, optimizer, algorithm="line-search:tries=3") as node:
        with pytest.raises(StateError, match=r"node\.criterion"):
            step(model, optimizer)
        node.criterion = lambda: losses.append(float(F.cross_entropy(model(X), Y))) or losses[-1]
        step(model, optimizer)
    assert len(losses) == 3 and len(set(losses)) == 1, "alone, all merges are the own model"


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_consensus_alone_is_there_at_once(algorithm: str) -> None:
    model = mlp()
    optimizer = OPTIMIZERS["sgd"](model)
    with p2p.join(model, optimizer, algorithm=algorithm) as node:
        plain(model, optimizer)
        before = copy.deepcopy(state_of(model, optimizer))
        result = node.consensus()
        assert (result.done, result.missing) == (True, ())
        assert result.seconds < 1
        assert identical(before, state_of(model, optimizer))
        assert node.last_step.step == node.progress == 6


def test_the_first_step_waits_for_members_until_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    model = mlp()
    optimizer = OPTIMIZERS["sgd"](model)
    with p2p.join(model, optimizer, wait_for=2, join_timeout=0.2) as node:
        began = time.monotonic()
        plain(model, optimizer)
        assert 0.2 <= time.monotonic() - began < 5
        assert "1 of 2 members are here; training begins without the others" in caplog.text
        assert node.last_step.step == 6


def test_ctrl_c_ends_a_wait_and_the_node_leaves() -> None:
    model = mlp()
    optimizer = OPTIMIZERS["sgd"](model)
    began = time.monotonic()
    node = p2p.join(model, optimizer, wait_for=2, join_timeout=60)
    threading.Thread(target=interrupt_once_waiting, args=(node,)).start()
    with pytest.raises(KeyboardInterrupt), node:
        optimizer.step()
    assert time.monotonic() - began < 10


def interrupt_once_waiting(node: p2p.Node) -> None:
    """Ctrl-C, once the trainer's question is on the agent's loop."""
    await_question(node)
    os.kill(os.getpid(), signal.SIGINT)


def test_closing_from_another_thread_ends_the_trainers_wait() -> None:
    model = mlp()
    optimizer = OPTIMIZERS["sgd"](model)
    node = p2p.join(model, optimizer, wait_for=2, join_timeout=60)
    closer = threading.Thread(target=close_once_waiting, args=(node,))
    closer.start()
    with pytest.raises(ClosedError, match="left the swarm"):
        optimizer.step()
    closer.join()


def close_once_waiting(node: p2p.Node) -> None:
    await_question(node)
    node.close()


def await_question(node: p2p.Node) -> None:
    deadline = time.monotonic() + 10
    while not any("Agent.members" in repr(task) for task in asyncio.all_tasks(node._thread.loop)):
        assert time.monotonic() < deadline


def test_a_dead_agent_is_an_error_and_close_still_closes() -> None:
    model = mlp()
    optimizer = OPTIMIZERS["sgd"](model)
    node = p2p.join(model, optimizer, algorithm="gossip")
    plain(model, optimizer)
    node._thread.stop()
    with pytest.raises(ClosedError, match="left the swarm"):
        optimizer.step()
    with pytest.raises(ClosedError):
        node.consensus()
    node.close()
    node._agent.transport._context.destroy(0)  # its loop can't any more


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"topology": "rin"}, ConfigError, "there is no topology 'rin'; did you mean ring"),
        ({"algorithm": "gosip"}, ConfigError, "there is no algorithm 'gosip'; did you mean gossip"),
        ({"wait_for": 0}, ConfigError, "wait_for is 0"),
        ({"listen": "7000"}, p2p.JoinError, "'7000' is no address: tcp://host:port is expected"),
        ({"listen": "tcp://*:0"}, p2p.SecretError, "can't listen on tcp://\\*:0 without a secret"),
        ({"secret": b"short"}, p2p.SecretError, "a secret of 5 bytes; 32 are expected"),
        ({"secret": "/no/such/file"}, p2p.SecretError, "secret file /no/such/file can't be read"),
    ],
)
def test_what_cant_be_is_refused_before_anything_is_open(
    settings: dict[str, object], error: type[Exception], said: str
) -> None:
    model = mlp()
    with pytest.raises(error, match=said) as refused:
        p2p.join(model, OPTIMIZERS["sgd"](model), **settings)
    assert "\n" not in str(refused.value)


def test_a_model_without_an_optimizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="no optimizer was given"):
        p2p.join(mlp(), [])
