"""Swarms of a few nodes on loopback, all in this process: joining, averages, consensus, leaving."""

import copy
import gc
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, SequentialLR
from torch.utils.data import DataLoader, Dataset

import p2p
from p2p.config import TEST
from p2p.errors import StateError

ANSWER = 0.5
CONFIG = replace(TEST, join=replace(TEST.join, answer=ANSWER, progress=2 * ANSWER), deadline=replace(TEST.deadline, first=2.0))
SECRET = bytes(range(32))


class Swarm:
    """Nodes with models of their own, and a thread for each trainer."""

    def __init__(self, stack: ExitStack, **settings: object) -> None:
        self._stack = stack
        self._settings = settings
        self.models: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.nodes: list[p2p.Node] = []

    def add(self, **settings: object) -> p2p.Node:
        """One more node, whose model begins somewhere else."""
        torch.manual_seed(len(self.models))
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        return self.take(model, optimizer, **settings)

    def take(self, model: nn.Module, optimizer: torch.optim.Optimizer, **settings: object) -> p2p.Node:
        peers = [self.nodes[0].address] if self.nodes else []
        options = {"secret": SECRET, "listen": "tcp://127.0.0.1:0", "config": CONFIG, "peers": peers}
        node = self._stack.enter_context(p2p.join(model, optimizer, **(options | self._settings | settings)))
        self.models.append(model)
        self.optimizers.append(optimizer)
        self.nodes.append(node)
        return node

    def step(self, index: int) -> None:
        seed = 100 * index + self.nodes[index].last_step.step if self.nodes[index]._agent.report else index
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))
        self.optimizers[index].zero_grad()
        (self.models[index](x) - 1).square().mean().backward()
        self.optimizers[index].step()

    def train(self, steps: int, *indices: int) -> None:
        """All at once, or only some."""

        def loop(index: int) -> None:
            for _ in range(steps):
                self.step(index)

        self.each(loop, *indices)

    def each(self, call: Callable[[int], object], *indices: int) -> list[object]:
        chosen = indices or range(len(self.nodes))
        with ThreadPoolExecutor(len(chosen)) as pool:
            return list(pool.map(call, chosen))

    def parameters(self, index: int) -> Tensor:
        with torch.no_grad():
            return torch.cat([p.reshape(-1) for p in self.models[index].parameters()]).clone()


@pytest.fixture
def swarm() -> Iterator[Callable[..., Swarm]]:
    with ExitStack() as stack:
        yield lambda **settings: Swarm(stack, **settings)
    gc.collect()


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)


@contextmanager
def silent(node: p2p.Node) -> Iterator[None]:
    """The node's agent does nothing, as if its process were stopped."""
    go_on = threading.Event()
    node._thread.loop.call_soon_threadsafe(go_on.wait, 60)
    try:
        yield
    finally:
        go_on.set()


# --- joining ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_a_joiner_begins_where_the_swarm_is(swarm: Callable[..., Swarm], algorithm: str) -> None:
    one = swarm(algorithm=algorithm)
    founder = one.add()
    one.train(25)
    state = copy.deepcopy([*one.models[0].state_dict().values(), *_moments(one.optimizers[0])])
    joiner = one.add(algorithm=None)
    assert joiner.epoch == founder.epoch
    assert joiner._agent.step_count == 25
    if algorithm == "async":  # a synchronous donor gives what it published last, before it mixed
        assert all(
            torch.equal(a, b)
            for a, b in zip(state, [*one.models[1].state_dict().values(), *_moments(one.optimizers[1])], strict=True)
        )
    one.train(20)
    assert joiner.last_step.step == 45
    until(lambda: abs(joiner.progress - 45) < 1)
    assert {str(s) for s in joiner.members.values()} == {"alive"}


def _moments(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [state["momentum_buffer"] for state in optimizer.state.values()]


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_joining_while_others_train(swarm: Callable[..., Swarm], algorithm: str) -> None:
    some = swarm(algorithm=algorithm)
    for _ in range(3):
        some.add()
    stop = threading.Event()

    def loop(index: int) -> None:
        while not stop.is_set():
            some.step(index)

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(loop, index) for index in range(3)]
        try:
            until(lambda: some.nodes[0].progress > 20)
            joiner = some.add(algorithm=None)
            some.train(30, 3)
        finally:
            stop.set()
        for done in running:
            done.result()
    assert joiner.last_step.step > 30
    assert joiner._agent.metrics.snapshot().get(("non_finite", ""), 0) == 0
    ends = some.each(lambda index: some.nodes[index].consensus(timeout=30))
    assert all(end.done for end in ends), ends
    assert max(float((some.parameters(i) - some.parameters(0)).abs().max()) for i in range(4)) < 0.02


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], LRScheduler]] = {
    "cosine": lambda o: CosineAnnealingLR(o, T_max=50),
    "warm-up": lambda o: SequentialLR(o, [LinearLR(o, 0.1, total_iters=4), CosineAnnealingLR(o, T_max=46)], milestones=[4]),
    "function": lambda o: LambdaLR(o, lambda epoch: 0.9**epoch),
}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_joiner_takes_the_schedule_over(swarm: Callable[..., Swarm], kind: str) -> None:
    some = swarm()
    schedules = []
    for steps in (7, 3):
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        schedules.append(SCHEDULES[kind](optimizer))
        some.take(model, optimizer, scheduler=schedules[-1])
        for _ in range(steps):
            some.step(len(schedules) - 1)
            schedules[-1].step()
    alone = torch.optim.SGD(nn.Linear(4, 2).parameters(), lr=0.05)
    expected = SCHEDULES[kind](alone)
    for _ in range(10):
        alone.step()
        expected.step()
    assert schedules[1].last_epoch == 10
    assert some.optimizers[1].param_groups[0]["lr"] == pytest.approx(alone.param_groups[0]["lr"], rel=1e-12)


def test_another_kind_of_schedule_is_refused(swarm: Callable[..., Swarm]) -> None:
    some = swarm()
    for make in (SCHEDULES["cosine"], SCHEDULES["function"]):
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        if make is SCHEDULES["cosine"]:
            some.take(model, optimizer, scheduler=make(optimizer))
        else:
            with pytest.raises(StateError, match="the donor's schedule does not fit this node's LambdaLR"):
                some.take(model, optimizer, scheduler=make(optimizer))


def test_the_first_look_at_the_data_waits_for_the_members(swarm: Callable[..., Swarm]) -> None:
    """Else each would take all samples in the first epoch."""
    three = swarm(wait_for=3)
    for _ in range(3):
        three.add()

    def share(index: int) -> list[int]:
        seen = []
        for sample in three.nodes[index].sampler(range(30), chunk=5):
            three.step(index)
            seen.append(sample)
        return seen

    assert sorted(sample for seen in three.each(share) for sample in seen) == list(range(30))


def test_who_has_come_finished_and_left_is_not_waited_for(swarm: Callable[..., Swarm]) -> None:
    """A node whose first step comes late: its patience is far longer than the test's."""
    two = swarm(wait_for=2, join_timeout=1000.0)
    two.add()
    two.add()
    two.step(1)
    two.nodes[1].close()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(two.step, 0).result(60)
    assert two.nodes[0].step_count == 1


# --- the mean ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_all_may_average_at_once(swarm: Callable[..., Swarm], algorithm: str) -> None:
    five = swarm(algorithm=algorithm)
    for _ in range(5):
        five.add()
    five.train(5)
    before = [five.parameters(index) for index in range(5)]
    inside: dict[int, Tensor] = {}

    def average(index: int) -> int:
        with five.nodes[index].averaged() as count:
            inside[index] = five.parameters(index)
        return count

    assert five.each(average) == [5] * 5
    after = [five.parameters(index) for index in range(5)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert max(float((inside[i] - inside[0]).abs().max()) for i in range(5)) < 0.2


def test_the_mean_is_that_of_all_models(swarm: Callable[..., Swarm]) -> None:
    """Nobody swaps here: no step has been taken, so nobody has a pace."""
    three = swarm(wait_for=3)
    for index in range(3):
        three.add()
        with torch.no_grad():
            for p in three.models[index].parameters():
                p.fill_(float(index))
    three.each(lambda index: three.nodes[index]._agent.offer())
    with three.nodes[1].averaged() as count:
        assert count == 3
        assert torch.allclose(three.parameters(1), torch.ones_like(three.parameters(1)), atol=1e-6)
    assert torch.equal(three.parameters(1), torch.ones_like(three.parameters(1)))


def test_a_silent_member_is_left_out_of_the_average(swarm: Callable[..., Swarm], caplog: pytest.LogCaptureFixture) -> None:
    three = swarm()
    for _ in range(3):
        three.add()
    three.train(3)
    with silent(three.nodes[2]):
        began = time.monotonic()
        with three.nodes[0].averaged() as count:
            assert count == 2
        assert time.monotonic() - began < 10 * ANSWER
    assert f"left out of the average: node {three.nodes[2].id}: no answer (timed out)" in caplog.text


# --- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["async", "gossip", "gossip:deadline=off"])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_consensus_makes_the_models_one(swarm: Callable[..., Swarm], n: int, algorithm: str) -> None:
    some = swarm(algorithm=algorithm, wait_for=n)
    for _ in range(n):
        some.add()
    some.train(4)
    ends = some.each(lambda index: some.nodes[index].consensus(timeout=60))
    assert all(end.done and end.missing == () for end in ends), ends
    scale = float(some.parameters(0).square().mean().sqrt())
    apart = [float((some.parameters(i) - some.parameters(0)).square().mean().sqrt()) for i in range(n)]
    assert max(apart) < 1e-2 * scale
    assert [node.last_step.step for node in some.nodes] == [4] * n


def test_consensus_on_moving_averages_gives_that_of_the_mean(swarm: Callable[..., Swarm]) -> None:
    three = swarm(algorithm="local:deadline=off,period=3,ema=0.5", topology="ring", wait_for=3)
    for _ in range(3):
        three.add()
    three.train(4)
    before = [three.parameters(i) for i in range(3)]
    averages = [torch.cat([value.reshape(-1) for _, value in node._task.method.ema()]) for node in three.nodes]

    def end(index: int) -> Tensor:
        with three.nodes[index].ema():
            assert three.nodes[index].consensus(timeout=60).done
            return three.parameters(index)

    mean = torch.stack(averages).mean(0)
    assert max(float((one - mean).abs().max()) for one in averages) > 1e-3
    for ended in three.each(end):
        torch.testing.assert_close(ended, mean, rtol=0, atol=1e-2 * float(mean.square().mean().sqrt()))
    assert all(torch.equal(three.parameters(i), before[i]) for i in range(3))


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_consensus_ends_at_its_deadline_and_names_who_trains(swarm: Callable[..., Swarm], algorithm: str) -> None:
    two = swarm(algorithm=algorithm)
    for _ in range(2):
        two.add()
    two.train(3)
    began = time.monotonic()
    end = two.nodes[0].consensus(timeout=0.5)
    assert (end.done, end.missing) == (False, (two.nodes[1].id,))
    assert 0.5 <= time.monotonic() - began < 5
    two.train(2, 1)
    assert two.nodes[1].last_step.step == 5


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_a_node_whose_only_peer_left_goes_on(swarm: Callable[..., Swarm], algorithm: str) -> None:
    two = swarm(algorithm=algorithm)
    for _ in range(2):
        two.add()
    two.train(5)
    two.nodes[0].close()
    until(lambda: two.nodes[1].members[two.nodes[0].id] == "left")
    two.train(5, 1)
    assert (two.nodes[1].last_step.step, two.nodes[1].last_step.wait) == (10, pytest.approx(0, abs=0.5))
    assert two.nodes[1].consensus().done
    two.add(peers=[two.nodes[1].address], algorithm=None)  # the founder need not be there
    two.train(2, 1, 2)
    assert (two.nodes[1].last_step.step, two.nodes[2].last_step.step) == (12, 12)


# --- forks -----------------------------------------------------------------------------------------------------------


class TcpSockets(Dataset[int]):
    """Each sample is the number of TCP sockets that the process has which loads it."""

    def __getitem__(self, index: int) -> int:
        return sum(_is_tcp(int(number)) for number in os.listdir("/proc/self/fd"))

    def __len__(self) -> int:
        return 8


def _is_tcp(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
    except OSError:
        return False
    borrowed = socket.socket(fileno=descriptor)
    try:
        return borrowed.family in (socket.AF_INET, socket.AF_INET6)
    finally:
        borrowed.detach()


def test_loader_workers_that_fork_hold_no_socket(swarm: Callable[..., Swarm]) -> None:
    two = swarm()
    two.add()
    node = two.add()
    two.train(3)
    data = TcpSockets()
    assert data[0] > 0
    loader = DataLoader(data, batch_size=1, num_workers=2, sampler=node.sampler(data), multiprocessing_context="fork")
    assert {int(sockets) for sockets in loader} == {0}
    del loader
    two.train(3)
    assert node.last_step.step == 6


def test_a_forked_child_may_not_use_the_node(swarm: Callable[..., Swarm]) -> None:
    one = swarm()
    node = one.add()
    child = os.fork()
    if child == 0:
        os._exit(_used_in_a_child(node, one.optimizers[0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    one.train(2)
    assert node.last_step.step == 2


def _used_in_a_child(node: p2p.Node, optimizer: torch.optim.Optimizer) -> int:
    """0 where each use was refused, and closing did nothing."""
    for call in (optimizer.step, node.consensus, lambda: node.log(a=1.0)):
        try:
            call()
        except p2p.ClosedError as error:
            if "forked child" not in str(error):
                return 1
        else:
            return 2
    node.close()
    return 0
