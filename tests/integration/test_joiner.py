"""Joiners over real sockets: all of the state is the donor's, whatever a donor does; exchanges close the rest of the gap."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

import p2p
from p2p.agent import entrance
from p2p.agent.agent import Agent
from p2p.agent.donor import Donor
from p2p.agent.entrance import Door
from p2p.agent.participant import Task
from p2p.agent.transfer import Transfer
from p2p.config import KIB, TEST, Config
from p2p.errors import JoinError
from p2p.net.messages import BlocksRequest, Phase, Welcome
from p2p.net.seal import Seal
from p2p.net.transport import Route

BLOCKS = replace(TEST.exchange, block_bytes=4 * KIB, message_bytes=8 * KIB)


def config(donors: int, timeout: float = 5.0) -> Config:
    return replace(TEST, exchange=BLOCKS, join=replace(TEST.join, donors=donors, answer=2.0, progress=2.0, timeout=timeout))


class Member:
    """A node with all that a state has: moments, buffers, a schedule, a GradScaler."""

    def __init__(self, seed: int, peers: list[str], config: Config) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 32))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = CosineAnnealingLR(self.optimizer, T_max=100)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=4)
        given = {"scheduler": self.scheduler, "scaler": self.scaler, "config": config}
        self.node = p2p.join(self.model, self.optimizer, peers=peers, join_timeout=config.join.timeout, **given)  # type: ignore[arg-type]

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.scaler.scale(self.model(torch.randn(8, 64)).square().mean()).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.scheduler.step()

    def state(self) -> list[Tensor]:
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return [tensor.clone() for tensor in (*self.model.state_dict().values(), *moments)]


@pytest.fixture
def members() -> Iterator[list[Member]]:
    found: list[Member] = []
    with ExitStack() as stack:
        stack.callback(lambda: [member.node.close() for member in found])
        yield found


def founder(members: list[Member], count: int = 1) -> Member:
    for seed in range(count):
        members.append(Member(seed, [members[0].node.address] if members else [], config(3)))
    for member in members:
        member.train(10)
    return members[0]


def test_everything_is_the_donors(members: list[Member]) -> None:
    first = founder(members)
    state = first.state()
    members.append(Member(9, [first.node.address], config(1)))
    joiner = members[-1]
    assert all(torch.equal(a, b) for a, b in zip(state, joiner.state(), strict=True))
    assert joiner.node.step_count == first.node.step_count == 10
    assert joiner.optimizer.param_groups[0]["lr"] == first.optimizer.param_groups[0]["lr"]
    assert joiner.scheduler.state_dict() == first.scheduler.state_dict()
    assert joiner.scaler.state_dict() == first.scaler.state_dict()
    assert joiner.scaler.get_scale() > 8


def test_a_bundle_that_lies_is_fetched_from_another_and_counted(members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    first = founder(members, 3)
    liars = list[Donor]()
    honest = Donor.blocks

    def lie(self: Donor, node: str, route: Route, request: BlocksRequest, now: float) -> None:
        """Whoever is asked first seals nothing of what it sends, and sends nonsense."""
        liars.append(self)
        if self is liars[0]:
            present = self._present
            self._present = lambda blocks, buffer: present(blocks, buffer).fill_(0x4F)  # about 3.5e9
            with monkeypatch.context() as patched:
                patched.setattr(Seal, "mark", lambda *_: bytes(48))
                honest(self, node, route, request, now)
            self._present = present
        else:
            honest(self, node, route, request, now)

    monkeypatch.setattr(Donor, "blocks", lie)
    members.append(Member(9, [first.node.address], config(3)))
    joiner = members[-1]
    counts = joiner.node._agent.metrics.snapshot()
    assert [name for name, _ in counts].count("state_refused") == 1
    assert max(float(p.detach().abs().max()) for p in joiner.model.parameters()) < 1e3


def test_what_is_lost_is_asked_for_again(members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    first = founder(members, 3)
    lost = set[Donor]()
    honest = Donor.blocks

    def lose_the_first(self: Donor, node: str, route: Route, request: BlocksRequest, now: float) -> None:
        if self in lost:
            honest(self, node, route, request, now)
        lost.add(self)

    monkeypatch.setattr(Donor, "blocks", lose_the_first)
    members.append(Member(9, [first.node.address], config(3)))
    assert lost
    assert members[-1].node.step_count == 10


def test_a_swarm_in_which_nobody_gives_is_not_joined(members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    first = founder(members)
    before = first.state()
    monkeypatch.setattr(Donor, "blocks", lambda *_: None)
    monkeypatch.setattr(Transfer, "broke", lambda *_: None)
    with pytest.raises(JoinError, match="no member gave its state: those who could gave nothing"):
        members.append(Member(9, [first.node.address], config(3, timeout=1.0)))
    assert all(torch.equal(a, b) for a, b in zip(before, first.state(), strict=True))


def test_members_in_consensus_give_their_state(members: list[Member]) -> None:
    """Two have arrived and wait for a third that still trains; a fourth comes and is one of them."""
    founder(members, 3)
    arrived, straggler = members[:2], members[2]
    with ThreadPoolExecutor() as pool:
        ends = [pool.submit(member.node.consensus, timeout=60) for member in arrived]
        until(lambda: all(m.node._agent.membership.record.phase == Phase.ARRIVED for m in arrived))  # type: ignore[union-attr]
        members.append(Member(9, [arrived[0].node.address], config(3)))
        assert members[-1].node.step_count == 10
        ends += [pool.submit(member.node.consensus, timeout=60) for member in (straggler, members[-1])]
        assert [end.result().done for end in ends] == [True] * 4


def test_who_comes_as_the_last_one_leaves_is_told_so(members: list[Member], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its patience is far longer than the test's."""
    first = founder(members)
    asked = threading.Event()
    monkeypatch.setattr(Donor, "blocks", lambda *_: asked.set())
    leaver = threading.Thread(target=lambda: (asked.wait(30), first.node.close()))
    leaver.start()
    with pytest.raises(JoinError, match="the swarm has ended"):
        members.append(Member(9, [first.node.address], config(3, timeout=1000.0)))
    leaver.join()


def leave(member: Member) -> None:
    """Say goodbye, and go on answering."""
    agent = member.node._agent
    agent.loop.call_soon_threadsafe(lambda: agent.membership.leave(agent.loop.time()))  # type: ignore[union-attr]
    agent.loop.call_soon_threadsafe(agent.look_around)
    until(lambda: agent.node not in agent.view)


def test_who_knocks_at_a_leaver_is_sent_to_another(members: list[Member]) -> None:
    first = founder(members, 2)
    other = members[1].node
    leave(first)
    with pytest.raises(JoinError, match=f"this node is leaving; try node {other.id} at {other.address}"):
        Member(9, [first.node.address], config(3, timeout=0.5))


def test_whose_door_leaves_between_knock_and_hello_takes_another(
    members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which the first one told it."""
    first = founder(members, 2)
    hello, doors = entrance._hello, list[str]()

    async def late(agent: Agent, task: Task, door: Door) -> Welcome:
        doors.append(door.address)
        if len(doors) == 1:
            leave(first)
        return await hello(agent, task, door)

    monkeypatch.setattr(entrance, "_hello", late)
    members.append(Member(9, [first.node.address], config(3)))
    assert doors == [first.node.address, members[1].node.address]
    assert members[-1].node.step_count == 10


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)
