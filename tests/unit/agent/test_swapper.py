"""Swaps carried out: what is sent, kept, sent again and given up, between real shards."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from optim import Kind
from p2p.net.messages import Answer, Ask, Pulse, Reask, Settled
from tests.simulation.swap_world import CONFIG, Plain, SwapWorld


def plain(value: float, elements: int = 20) -> list[Plain]:
    return [Plain("weight", Kind.PARAMETER, torch.full((elements,), value, dtype=torch.float64))]


def pair(a: float = 0.0, b: float = 8.0, **knobs: int) -> SwapWorld:
    """Node 0 alone has a pace, and asks node 1."""
    world = SwapWorld([plain(a), plain(b)], config=replace(CONFIG, **knobs))  # type: ignore[arg-type]
    world.nodes["0"].swaps.pace = 10.0
    world.arm("0")
    return world


def kinds(world: SwapWorld) -> list[str]:
    return [type(message).__name__ for _, _, _, message in world.log]


def value(world: SwapWorld, node: str) -> float:
    [found] = set(world.copy(node, Kind.PARAMETER).tolist())
    return float(found)


def test_a_swap_meets_in_the_middle_and_is_receipted() -> None:
    world = pair()
    world.run(5.0)
    assert (value(world, "0"), value(world, "1")) == (4.0, 4.0)
    assert kinds(world) == ["Ask", "Answer", "Settled"]
    assert world.nodes["1"].swaps._answers.find("0", 1000) is None, "the answer is dropped with its receipt"


def test_receipts_ride_on_the_next_request() -> None:
    world = pair()
    world.nodes["0"]._settle_after = 100.0
    world.run(10.15)
    assert kinds(world) == ["Ask", "Answer", "Ask"]
    last = world.log[-1][3]
    assert isinstance(last, Ask) and last.settled == (1000,)


@pytest.mark.parametrize("lost", ["Ask", "Answer"])
def test_what_a_broken_connection_took_is_asked_for_again(lost: str) -> None:
    world = pair()
    world.run(0.05 if lost == "Ask" else 0.15)
    world.break_("0", "1")
    world.run(5.0)
    mixed = lost == "Answer"
    assert kinds(world)[:3] == (["Ask", "Reask", "Answer"] if mixed else ["Reask", "Answer"][:3])
    assert (value(world, "0"), value(world, "1")) == ((4.0, 4.0) if mixed else (0.0, 8.0))
    assert world.nodes["0"].drained


def test_an_answer_that_is_still_on_its_way_is_not_sent_twice() -> None:
    """Over a slow line the repeated requests of a whole minute cost a few bytes each, and no payload."""
    world = pair()
    world.delay = lambda sender, receiver: 0.1 if sender == "0" else 60.0
    world.run(500.0)
    answered = [m.exchange for _, _, _, m in world.log if isinstance(m, Answer) and m.accepted]
    assert kinds(world).count("Reask") > 20
    assert len(answered) == len(set(answered)) > 5


def test_a_repeated_answer_is_applied_once() -> None:
    world = pair()
    world.run(0.25)
    [answer] = [m for _, _, _, m in world.log if isinstance(m, Answer)]
    kept = world.nodes["1"].swaps._answers.find("0", 1000)
    assert kept is not None
    payload = memoryview(bytes(kept.buffer[: kept.used].numpy()))  # type: ignore[attr-defined]
    world.nodes["0"].handle("1", "1", answer, payload, world.now)
    assert value(world, "0") == 4.0


def test_a_spoilt_answer_leaves_the_swap_open_and_is_asked_for_again() -> None:
    world = pair()
    handle = world.nodes["0"].handle
    spoilt = []

    def spoil(sender: str, route: object, message: object, payload: memoryview | None, now: float) -> None:
        if isinstance(message, Answer) and not spoilt:
            spoilt.append(message)
            message = replace(message, shard=replace(message.shard, checksum=1))
            with pytest.raises(Exception, match="checksum"):
                handle(sender, route, message, payload, now)  # type: ignore[arg-type]
            return
        handle(sender, route, message, payload, now)  # type: ignore[arg-type]

    world.nodes["0"].handle = spoil  # type: ignore[method-assign]
    world.run(5.0)
    assert len(spoilt) == 1
    assert (value(world, "0"), value(world, "1")) == (4.0, 4.0)
    assert world.nodes["0"].swaps.tally.moved == 0


def test_a_partner_that_cannot_be_reached_yet_is_asked_later() -> None:
    world = pair()
    world.full = {"1"}
    world.run(1.0)
    assert (kinds(world), value(world, "0"), world.nodes["0"].drained) == ([], 0.0, True)
    assert world.nodes["0"].wake > world.now
    world.full = set()
    world.run(1.0)
    assert value(world, "0") == 4.0


def test_a_partner_that_is_gone_keeps_nothing_open() -> None:
    world = pair()
    world.run(0.15)
    world.break_("0", "1")
    world.view(["0"])
    assert world.nodes["0"].drained
    assert world.nodes["0"].swaps.tally.moved == 3, "blocks whose answers are not known"
    world.run(100.0)
    assert (value(world, "0"), world.nodes["0"].wake) == (0.0, pytest.approx(math.inf))


def test_who_trained_alone_asks_the_first_that_joins() -> None:
    world = pair()
    world.view(["0"])
    world.run(50.0)
    world.view(["0", "1"])
    world.arm("0")
    world.run(20.0)
    assert (value(world, "0"), value(world, "1")) == (4.0, 4.0)


def test_what_is_not_finite_is_not_sent_named_and_does_not_block_the_link() -> None:
    nan = Plain("weight", Kind.PARAMETER, torch.zeros(20, dtype=torch.float64))
    world = SwapWorld([[nan], plain(8.0)])
    shards = world.nodes["0"].shards
    shards._copy.piece(shards.blocks[0])[3] = torch.nan
    world.nodes["0"].swaps.pace = 10.0
    world.arm("0")
    world.run(9.0)
    assert kinds(world) == []
    assert world.metrics.snapshot()[("non_finite", "weight")] == 1, "once per period"
    assert world.nodes["0"].links["1"].idle and world.nodes["0"].drained
    assert value(world, "1") == 8.0


def test_what_was_answered_and_is_not_finite_is_declined_for_that_block_alone() -> None:
    world = pair()
    shards = world.nodes["1"].shards
    shards._copy.piece(shards.blocks[1])[0] = torch.nan
    world.run(2.0)
    assert world.copy("0", Kind.PARAMETER).tolist() == [4.0] * 8 + [0.0] * 8 + [4.0] * 4
    [answer] = [m for _, _, _, m in world.log if isinstance(m, Answer)]
    assert answer.accepted == 0b101


def test_who_closes_is_drained_once_its_answer_is_here_and_answers_nobody_anew() -> None:
    world = pair()
    world.run(0.05)
    for node in world.nodes.values():
        node.close()
    assert not world.nodes["0"].drained
    world.run(5.0)
    assert world.nodes["0"].drained
    assert (value(world, "0"), value(world, "1")) == (0.0, 8.0), "node 1 had closed before the request came"


def test_a_joiners_limit_follows_its_own_swaps() -> None:
    world = pair(a=0.0, b=8.0)
    world.nodes["0"].resume(step=40, round=999, members=8)
    assert world.nodes["0"].swaps.ramp == 6
    world.run(0.5)
    assert value(world, "0") == 1.0, "an eighth, whatever the donor's round"


def test_a_founder_has_no_ramp() -> None:
    world = pair()
    world.nodes["0"].resume(step=0, round=0, members=1)
    assert world.nodes["0"].swaps.ramp == 0


def test_the_mixing_interval_counts_swaps_and_not_looks() -> None:
    world = pair()
    world.full = {"1"}
    world.run(100.0)
    assert (world.nodes["0"].mean_round, world.nodes["0"].round) == (0.0, 0)
    world.full = set()
    world.run(50.0)
    assert 5 <= world.nodes["0"].mean_round <= 7, "five that were due, and at most two that were owed"


def test_buffers_are_bounded_while_a_partner_is_stuck() -> None:
    """Node 2 reads nothing for long; what goes to node 1 reuses the same buffers all the while."""
    world = SwapWorld([plain(float(i)) for i in range(3)])
    world.delay = lambda sender, receiver: 1000.0 if "2" in (sender, receiver) else 0.1
    world.pace(1.0)
    world.run(200.0)
    staging = world.nodes["0"]._staging
    assert world.nodes["0"].swaps.tally.swapped > 200
    assert sum(map(len, staging._free.values())) + len(staging._leaving) < 40


def test_requests_and_answers_carry_the_pulse() -> None:
    world = pair()
    world.nodes["1"].pace.step = 7
    world.run(1.0)
    assert world.nodes["0"].activity.partners == {"1": 7}
    assert all(isinstance(m.pulse, Pulse) for _, _, _, m in world.log if not isinstance(m, Settled | Reask))
