"""Replicas: both ends hold the same, or found a new one; whatever is lost, forgotten or spoilt, and the sum is kept."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from optim import Kind
from p2p.agent.replicas import digest
from p2p.net.messages import Answer, Ask
from tests.simulation.recursions import swaps_of_changes
from tests.simulation.swap_world import CONFIG, Plain, SwapWorld, sources

CODECS = ("top-k:3", "sign", "int4")
ROOMY = replace(CONFIG, block_bytes=256, message_bytes=1024)


def pair(codec: str = "top-k:3", **knobs: int) -> SwapWorld:
    """Node 0 alone has a pace, and asks node 1: 64 elements in two blocks, in one message."""
    draw = torch.Generator().manual_seed(1)
    own = [[Plain("weight", Kind.PARAMETER, torch.randn(64, generator=draw, dtype=torch.float64))] for _ in range(2)]
    world = SwapWorld(own, config=replace(ROOMY, codec=codec, **knobs))  # type: ignore[arg-type]
    world.nodes["0"].swaps.pace = 10.0
    world.arm("0")
    return world


def asks(world: SwapWorld) -> list[str]:
    return [message.shard.codec for _, _, _, message in world.log if isinstance(message, Ask)]


def held(world: SwapWorld, index: int) -> tuple[Tensor | None, Tensor | None]:
    """Block of node 0, as it and node 1 hold that node 1 holds it."""
    return world.nodes["0"].coding.told.store.get("1", index), world.nodes["1"].coding.heard.store.get("0", index)


def agree(world: SwapWorld) -> bool:
    pairs = [held(world, i) for i in range(2)]
    return all(told is not None and heard is not None and torch.equal(told, heard) for told, heard in pairs)


def apart(world: SwapWorld) -> float:
    return float((world.copy("0", Kind.PARAMETER) - world.copy("1", Kind.PARAMETER)).norm())


def total(world: SwapWorld) -> Tensor:
    return world.copy("0", Kind.PARAMETER) + world.copy("1", Kind.PARAMETER)


@pytest.mark.parametrize("codec", CODECS)
def test_a_replica_is_founded_by_values_and_followed_by_changes(codec: str) -> None:
    world = pair(codec)
    before, sum_before = apart(world), total(world)
    world.run(5.0)
    assert (asks(world), agree(world)) == (["int8"], True)
    torch.testing.assert_close(held(world, 0)[0], world.copy("0", Kind.PARAMETER)[:32], rtol=0, atol=0.02)  # answer included
    world.run(400.0)
    assert (set(asks(world)[1:]), agree(world)) == ({codec}, True)
    assert apart(world) < 1e-3 * before
    torch.testing.assert_close(total(world), sum_before, rtol=0, atol=1e-12)


def test_the_request_is_of_what_changed_since_and_reaches_the_model_exactly() -> None:
    """One of every three elements crosses, so a change of few elements crosses whole."""
    world = pair("top-k:3")
    world.run(400.0)
    change = torch.zeros(64, dtype=torch.float64)
    change[2], change[40] = 5.0, -3.0
    tensor = world.nodes["0"].shards.sources[0].read()
    assert tensor is not None
    tensor += change
    world.nodes["0"].offer(1)
    middle = total(world) / 2
    world.run(20.0)
    torch.testing.assert_close(world.copy("1", Kind.PARAMETER), middle, rtol=0, atol=1e-5)


def test_swaps_of_changes_are_the_recursion() -> None:
    """With local updates in between; numpy's own top-k and levels."""
    world, updates = pair("top-k:4"), np.random.default_rng(3).normal(0, 0.1, (12, 64))
    x, y = (world.copy(node, Kind.PARAMETER).numpy() for node in ("0", "1"))
    tensor = world.nodes["0"].shards.sources[0].read()
    assert tensor is not None
    for step, update in enumerate(updates):
        tensor += torch.from_numpy(update)
        world.nodes["0"].offer(step)
        world.run(10.0 if step else 5.0)
    assert len(asks(world)) == 12
    expected = [swaps_of_changes(x[cut], y[cut], updates[:, cut], 8) for cut in (slice(0, 32), slice(32, 64))]
    for node, blocks in zip(("0", "1"), zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(world.copy(node, Kind.PARAMETER).numpy(), np.concatenate(blocks), rtol=0, atol=1e-5)


@pytest.mark.parametrize("lost", ["Ask", "Answer"])
def test_what_a_broken_connection_took_leaves_the_replicas_equal(lost: str) -> None:
    world = pair()
    world.run(20.05 if lost == "Ask" else 20.15)
    world.break_("0", "1")
    world.run(5.0)
    assert agree(world)
    world.run(30.0)
    assert asks(world).count("int8") == 1, "and nothing was founded anew"


def test_an_answer_that_was_forgotten_founds_anew() -> None:
    """Node 1 has moved its replica, node 0 has not: the next request names another one than node 1 holds."""
    world = pair()
    before = total(world)
    world.run(20.15)
    world.break_("0", "1")
    shelf = world.nodes["1"].swaps._answers._shelves["0"]
    for exchange in list(shelf.answers):
        shelf.take(exchange)
    world.run(5.0)
    assert not agree(world)
    world.run(10.0)
    [refused] = [m for _, _, _, m in world.log if isinstance(m, Answer) and m.unknown]
    assert (refused.unknown, refused.accepted) == (0b11, 0)
    world.run(10.0)
    assert (asks(world)[-2:], agree(world)) == (["top-k:3", "int8"], True)
    assert float((total(world) - before).abs().max()) > 1e-9, "what a forgotten answer moved is counted elsewhere"


@pytest.mark.parametrize("side", ["told", "heard"])
def test_replicas_that_differ_in_one_bit_never_go_unnoticed(side: str) -> None:
    world = pair("int4")
    before = total(world)
    world.run(15.0)
    store = (world.nodes["0"].coding.told if side == "told" else world.nodes["1"].coding.heard).store
    replica = store.get("1" if side == "told" else "0", 1)
    assert replica is not None
    replica[3] = torch.nextafter(replica[3], torch.tensor(9.0, dtype=torch.float64))
    world.run(10.0)
    answers = [m for _, _, _, m in world.log if isinstance(m, Answer)]
    assert (answers[-1].unknown, answers[-1].accepted) == (0b10, 0b01), "the other block is mixed"
    world.run(10.0)
    assert (asks(world)[-1], agree(world)) == ("int8", True)
    torch.testing.assert_close(total(world), before, rtol=0, atol=1e-12)


def test_a_partner_that_is_gone_frees_its_replicas() -> None:
    world = pair()
    world.run(20.15)  # and one request is unanswered
    assert world.nodes["0"].coding.told.store.nbytes == world.nodes["1"].coding.heard.store.nbytes == 512
    for node in world.nodes:
        world.view([node])
    assert world.nodes["0"].coding.told.store.nbytes == world.nodes["1"].coding.heard.store.nbytes == 0
    world.view(world.nodes)
    world.arm("0")
    world.run(25.0)
    assert agree(world) and asks(world).count("int8") == 2


@pytest.mark.parametrize(("node", "room"), [("0", 800), ("1", 800), ("0", 0), ("1", 0)])
def test_beyond_the_room_blocks_travel_as_values(node: str, room: int) -> None:
    """One replica of 256 bytes has room in a half of 800 bytes, the other has not; swaps go on all the same."""
    world = pair()
    coding = world.nodes[node].coding
    (coding.told if node == "0" else coding.heard).store._room = room // 2
    before = total(world)
    world.run(100.0)
    assert (coding.told if node == "0" else coding.heard).store.nbytes <= room // 2
    assert set(asks(world)) == {"int8"}, "both blocks are in one message, and one of them is not held"
    assert apart(world) < 0.1
    torch.testing.assert_close(total(world), before, rtol=0, atol=1e-12)


@pytest.mark.parametrize("codec", CODECS)
def test_through_trouble_what_both_hold_is_the_same(codec: str) -> None:
    """Four nodes train; connections break all the time, one node's messages take many steps."""
    rng = random.Random(0)
    world = SwapWorld(
        [sources(i, 80) for i in range(4)],
        delay=lambda sender, receiver: rng.uniform(3.0, 8.0) if sender == "3" else rng.uniform(0.01, 0.6),
        config=replace(ROOMY, codec=codec),
    )
    world.pace(1.0)

    def trouble() -> None:
        world.break_(*rng.sample(list(world.nodes), 2))
        node = world.nodes[rng.choice(list(world.nodes))]
        for source in node.shards.sources:
            tensor = source.read()
            assert tensor is not None
            tensor.add_(abs(rng.gauss(0, 0.1)))
        node.offer(1)
        world.at(world.now + rng.expovariate(1.0), trouble)

    world.at(1.0, trouble)
    world.run(150.0)
    followed = Counter(message.shard.codec for _, _, _, message in world.log if isinstance(message, Ask))
    assert followed[codec] > 60
    world.drain()
    same = [
        digest(value) == digest(heard)
        for name, node in world.nodes.items()
        for partner, blocks in node.coding.told.store._held.items()
        for index, value in blocks.items()
        if (heard := world.nodes[partner].coding.heard.store.get(name, index)) is not None
    ]
    assert len(same) > 40 and all(same)


def test_moments_that_do_not_cross_hold_up_nothing() -> None:
    """Neither where links keep up, nor where they are behind and everything owed goes by the stream."""
    for credit in (4096, 160):
        config = replace(CONFIG, codec="parameters:raw", credit_start=credit, credit_max=credit)
        world = SwapWorld([sources(i) for i in range(3)], config=config)
        world.pace(1.0)
        world.run(60.0)
        kinds = Counter(Kind(message.shard.kind) for _, _, _, message in world.log if isinstance(message, Ask))
        assert kinds[Kind.SIGNED] == 0 and min(kinds[Kind.PARAMETER], kinds[Kind.NONNEGATIVE]) > 40
        copies = torch.stack([world.copy(node, Kind.PARAMETER) for node in world.nodes])
        assert float(copies.std(0).max()) < 0.05


def test_what_may_not_be_negative_never_passes_through_changes() -> None:
    world = SwapWorld([sources(i) for i in range(3)], config=replace(CONFIG, codec="sign"))
    world.pace(1.0)
    world.run(50.0)
    codecs = {(message.shard.kind, message.shard.codec) for _, _, _, message in world.log if isinstance(message, Ask | Answer)}
    assert {codec for kind, codec in codecs if kind == Kind.NONNEGATIVE} == {"bfloat16"}
    assert all(not m.bases for _, _, _, m in world.log if isinstance(m, Ask) and m.shard.kind == Kind.NONNEGATIVE)
