"""A member that lies about shards: everything is refused with a reason, and neither state nor memory grows by it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

import optim
from optim import Kind
from optim.codec import INT8, RAW, Codec, make, writable
from p2p.agent.framing import EMPTY
from p2p.agent.pusher import Pusher
from p2p.agent.rounds import Plan
from p2p.config import LAN
from p2p.errors import WireError
from p2p.net import wire
from p2p.net.messages import Answer, Ask, Message, Pulse, Push, Reask, Settled, Shard
from p2p.report import Metrics
from p2p.sim.clock import run
from p2p.state.shards import Shards
from tests.simulation.swap_world import CONFIG, Plain, SwapWorld

PULSE = Pulse(3, 1.0)
PAYLOAD = torch.full((20,), 100.0, dtype=torch.float64)
"""Three blocks of float64: 8, 8 and 4 elements."""
BOUNDS = (0.0,) * 3


def shard(values: torch.Tensor = PAYLOAD, by: Codec = RAW, **changes: Any) -> tuple[Shard, memoryview]:
    """What an honest node would send of the first three blocks, with some changes to its header."""
    data = torch.cat([encoded(by, values[a:b]) for a, b in ((0, 8), (8, 16), (16, 20))])
    payload = writable(data)
    honest = Shard(0, 3, int(Kind.PARAMETER), by.name, "float64", values.numel(), wire.checksum(payload))
    return replace(honest, **changes), payload


def encoded(codec: Codec, x: torch.Tensor) -> torch.Tensor:
    data = torch.zeros(codec.nbytes(x.numel(), x.dtype), dtype=torch.uint8)
    codec.encode(x, data)
    return data


def sources(value: float = 0.0) -> list[Plain]:
    return [
        Plain("weight", Kind.PARAMETER, torch.full((20,), value, dtype=torch.float64)),
        Plain("moment", Kind.NONNEGATIVE, torch.ones(6, dtype=torch.float64)),
    ]


LIES: list[tuple[dict[str, Any], str]] = [
    ({"first": -1}, "blocks"),
    ({"first": 2}, "blocks"),  # over a run's end
    ({"first": 4}, "blocks"),
    ({"first": 2**63}, "blocks"),
    ({"count": 0}, "blocks"),
    ({"count": -3}, "blocks"),
    ({"count": 2**62}, "blocks"),
    ({"count": 2}, "payload"),
    ({"kind": int(Kind.NONNEGATIVE)}, "blocks"),
    ({"kind": -1}, "blocks"),
    ({"codec": "pickle"}, "codec"),
    ({"codec": "int8"}, "payload"),
    ({"dtype": "float32"}, "blocks"),
    ({"dtype": "x" * 1000}, "blocks"),
    ({"elements": 19}, "payload"),
    ({"elements": 2**62}, "payload"),
    ({"checksum": 0}, "checksum"),
]


# --- swaps -------------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> SwapWorld:
    """Node 0 is the victim, node 1 the liar: what is sent to it is only logged."""
    found = SwapWorld([sources(), sources(8.0), sources(4.0)])
    found.nodes["1"].handle = lambda *message: None  # type: ignore[method-assign]
    return found


def lie(world: SwapWorld, message: Message, payload: memoryview | None = None, sender: str = "1") -> None:
    world.nodes["0"].handle(sender, sender, message, payload, world.now)
    world.nodes["0"].swaps.validate_state()


def untouched(world: SwapWorld) -> bool:
    return set(world.copy("0", Kind.PARAMETER).tolist()) == {0.0} and set(world.copy("0", Kind.NONNEGATIVE).tolist()) == {1.0}


def ask(exchange: int = 1, weight: float = 0.5, **changes: Any) -> tuple[Ask, memoryview]:
    described, payload = shard(**changes)
    return Ask(exchange, weight, PULSE, (), BOUNDS, described), payload


@pytest.mark.parametrize(("changes", "reason"), LIES)
def test_a_request_that_lies_is_refused(world: SwapWorld, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(WireError) as error:
        lie(world, *ask(**changes))
    assert error.value.reason == reason
    assert untouched(world)
    lie(world, *ask())
    assert not untouched(world), "the honest one is mixed: its id was not used up by the lie"


@pytest.mark.parametrize("weight", [0.0, -0.5, 0.5000001, 1.0, 1e300, -1e-300])
def test_a_weight_out_of_range_is_refused(world: SwapWorld, weight: float) -> None:
    with pytest.raises(WireError, match="weight"):
        lie(world, *ask(weight=weight))
    assert untouched(world)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_values_that_are_not_finite_are_declined_and_named(world: SwapWorld, bad: float) -> None:
    lie(world, *ask(values=torch.full((20,), bad, dtype=torch.float64)))
    assert untouched(world)
    assert world.metrics.snapshot()[("non_finite", "weight")] == 3


def test_a_codec_with_scales_that_are_not_finite_is_declined(world: SwapWorld) -> None:
    described, payload = shard(by=INT8)
    data = bytearray(payload)
    data[:4] = torch.tensor([torch.inf]).numpy().tobytes()
    lie(world, Ask(1, 0.5, PULSE, (), BOUNDS, replace(described, checksum=wire.checksum(bytes(data)))), memoryview(data))
    assert world.copy("0", Kind.PARAMETER)[:8].tolist() == [0.0] * 8


def test_negative_second_moments_do_not_get_in(world: SwapWorld) -> None:
    data = torch.full((6,), -100.0, dtype=torch.float64)
    payload = writable(data)
    described = Shard(3, 1, int(Kind.NONNEGATIVE), "raw", "float64", 6, wire.checksum(payload))
    lie(world, Ask(1, 0.5, PULSE, (), BOUNDS[:1], described), payload)
    assert set(world.copy("0", Kind.NONNEGATIVE).tolist()) == {0.0}


def test_ids_that_jump_hurt_their_sender_alone(world: SwapWorld) -> None:
    lie(world, *ask(exchange=2**63))
    before = world.copy("0", Kind.PARAMETER)
    for exchange in (-1, 0, 1, 2**63):
        lie(world, *ask(exchange=exchange))
    assert torch.equal(world.copy("0", Kind.PARAMETER), before)
    lie(world, *ask(exchange=5), sender="2")
    assert not torch.equal(world.copy("0", Kind.PARAMETER), before)


def test_answers_that_nobody_asked_for_do_nothing(world: SwapWorld) -> None:
    described, payload = shard()
    for exchange in (-1, 0, 999, 1000, 2**63):
        lie(world, Answer(exchange, 0b111, 0.5, PULSE, described), payload)
        lie(world, Answer(exchange, 0, 0.0, PULSE, EMPTY))
    assert untouched(world)
    assert world.nodes["0"].swaps.receipts("1") == ()


def asked_of(world: SwapWorld, partner: str) -> int:
    """Let node 0 ask; the id of its request to this partner."""
    swaps = world.nodes["0"].swaps
    swaps.row = lambda round: ((partner, 1.0),)
    swaps.pace = 100.0
    world.nodes["0"].tick(world.now)
    assert swaps.asking(partner, 1000) is not None
    return 1000


@pytest.mark.parametrize(
    ("changes", "accepted", "weight", "reason"),
    [
        *((changes, 0b111, 0.5, reason) for changes, reason in LIES if not {"first", "count"} & set(changes)),
        ({}, 0b1111, 0.5, "blocks"),  # more than was asked about
        ({}, -1, 0.5, "blocks"),
        ({}, 2**63, 0.5, "blocks"),
        ({}, 0b011, 0.5, "payload"),  # fewer than it sends
        ({}, 0b111, 0.6, "weight"),
        ({}, 0b111, 0.0, "weight"),
        ({}, 0b111, -0.5, "weight"),
    ],
)
def test_an_answer_that_lies_is_refused_and_the_swap_stays_open(
    world: SwapWorld, changes: dict[str, Any], accepted: int, weight: float, reason: str
) -> None:
    exchange = asked_of(world, "1")
    described, payload = shard(**changes)
    with pytest.raises(WireError) as error:
        lie(world, Answer(exchange, accepted, weight, PULSE, described), payload)
    assert error.value.reason == reason
    assert untouched(world)
    described, payload = shard()
    lie(world, Answer(exchange, 0b111, 0.5, PULSE, described), payload)
    assert set(world.copy("0", Kind.PARAMETER).tolist()) == {-100.0}


def test_a_weight_above_what_was_asked_is_refused(world: SwapWorld) -> None:
    world.nodes["0"].swaps.ramp = 100
    exchange = asked_of(world, "1")
    described, payload = shard()
    with pytest.raises(WireError, match="weight"):
        lie(world, Answer(exchange, 0b111, 0.25, PULSE, described), payload)


def test_an_answer_in_anothers_name_does_nothing(world: SwapWorld) -> None:
    exchange = asked_of(world, "2")
    described, payload = shard()
    lie(world, Answer(exchange, 0b111, 0.5, PULSE, described), payload)
    assert untouched(world) and not world.nodes["0"].drained


def test_settled_for_others_exchanges_frees_nothing_of_theirs(world: SwapWorld) -> None:
    lie(world, *ask(exchange=7), sender="2")
    lie(world, Settled(tuple(range(-10, 1000))))
    assert world.nodes["0"].swaps._answers.find("2", 7) is not None


def test_repeated_requests_for_everything_are_declined_in_a_few_bytes(world: SwapWorld) -> None:
    for exchange in range(1000):
        lie(world, Reask(exchange))
    world.run(1.0)
    answers = [m for _, _, _, m in world.log if isinstance(m, Answer)]
    assert len(answers) == 1000 and all(m.accepted == 0 and m.shard == EMPTY for m in answers)
    assert world.nodes["0"].swaps._answers._shelves == {}


def test_answers_that_are_never_receipted_fill_no_memory() -> None:
    small = SwapWorld([sources(), sources()], config=replace(CONFIG, credit_max=20_000))
    small.nodes["1"].handle = lambda *message: None  # type: ignore[method-assign]
    for exchange in range(2000):
        lie(small, *ask(exchange=exchange))
        small.run(0.2)
    swapper = small.nodes["0"]
    assert len(swapper.swaps._answers._shelves["1"].answers) < 20
    assert swapper.swaps.tally.forgotten > 1900
    assert sum(map(len, swapper._staging._free.values())) < 20


@pytest.mark.parametrize("bounds", [(), (1.0, 1.0), (1.0,) * 4, (1.0, -1.0, 1.0), (1.0, torch.inf, 1.0), (1.0, torch.nan, 1.0)])
def test_bounds_that_are_none_are_refused(world: SwapWorld, bounds: tuple[float, ...]) -> None:
    described, payload = shard()
    with pytest.raises(WireError, match="bounds"):
        lie(world, Ask(1, 0.5, PULSE, (), bounds, described), payload)
    assert untouched(world)


@pytest.mark.parametrize(
    ("codec", "bases"),
    [
        ("top-k:2", ()),
        ("top-k:2", (1, 2)),
        ("raw", (0,)),
        ("raw", (0,) * 4),
        ("random-k:2", (0, 0, 0)),
        ("low-rank:1", (1, 2, 3)),
    ],
)
def test_bases_that_are_none_are_refused(world: SwapWorld, codec: str, bases: tuple[int, ...]) -> None:
    described, payload = shard(by=make(codec))
    with pytest.raises(WireError, match="bases"):
        lie(world, Ask(1, 0.5, PULSE, (), BOUNDS, described, bases), payload)
    assert untouched(world)


def test_what_may_not_be_negative_founds_no_replica(world: SwapWorld) -> None:
    payload = writable(torch.ones(6, dtype=torch.float64))
    described = Shard(3, 1, int(Kind.NONNEGATIVE), "raw", "float64", 6, wire.checksum(payload))
    with pytest.raises(WireError, match="bases"):
        lie(world, Ask(1, 0.5, PULSE, (), BOUNDS[:1], described, (0,)), payload)


def test_a_change_to_what_is_not_held_is_declined_and_costs_no_memory(world: SwapWorld) -> None:
    described, payload = shard(by=make("top-k:2"))
    for exchange, base in enumerate((1, 0, 2**64 - 1)):
        lie(world, Ask(exchange, 0.5, PULSE, (), BOUNDS, described, (base,) * 3), payload)
    assert untouched(world)
    assert world.nodes["0"].coding.heard.store.nbytes == 0


def test_a_replica_may_be_founded_by_any_values_and_is_a_copy(world: SwapWorld) -> None:
    described, payload = shard()
    lie(world, Ask(1, 0.5, PULSE, (), BOUNDS, described, (0, 0, 0)), memoryview(bytes(payload)))
    assert world.nodes["0"].coding.heard.store.nbytes == 160
    assert not untouched(world)


@pytest.mark.parametrize("pace", [0.0, -1.0, 1e9, 1e308])
def test_an_absurd_pace_changes_no_ones(world: SwapWorld, pace: float) -> None:
    described, payload = shard()
    lie(world, Ask(1, 0.5, Pulse(2**62, pace), (), BOUNDS, described), payload)
    assert world.nodes["0"].pace.neighbourhood() == 0.0


# --- rounds ------------------------------------------------------------------------------------------------------


class Silence:
    """A Post that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, node: str, message: Message, payload: memoryview | None = None) -> None:
        self.sent.append(message)

    answer = send


@pytest.fixture
def victim() -> Iterator[Pusher]:
    """In round 5, with neighbours "1" and "2"."""
    shards = Shards(list(sources()), block_bytes=64, live=False)
    algorithm = optim.make("gossip")
    assert algorithm.exchange == "push"
    pusher = Pusher(shards, algorithm, LAN, Silence(), Metrics(), 0)  # type: ignore[arg-type]
    pusher.offer(1)
    assert pusher._offered is not None
    pusher._published = {5: pusher._offered}
    pairs = (("1", 0.25), ("2", 0.25))
    pusher.rounds.begin(Plan(5, 0.5, pairs, pairs), 0.0)
    yield pusher
    assert len(pusher.rounds._arrived) < 12


def pushed(victim: Pusher, sender: str = "1", round: int = 5, weight: float = 0.25, exchange: int = 1, **changes: Any) -> None:
    described, payload = shard(**changes)
    victim.handle(sender, sender, Push(exchange, round, weight, PULSE, described), payload, 0.1)


@pytest.mark.parametrize(("changes", "reason"), LIES)
def test_a_push_that_lies_is_refused(victim: Pusher, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(WireError) as error:
        pushed(victim, **changes)
    assert error.value.reason == reason
    assert victim.rounds._arrived == {}


@pytest.mark.parametrize("weight", [0.0, -1.0, 1.0001, 1e300])
def test_a_push_with_a_weight_out_of_range_is_refused(victim: Pusher, weight: float) -> None:
    with pytest.raises(WireError, match="weight"):
        pushed(victim, weight=weight)


def test_rounds_far_ahead_fill_no_memory(victim: Pusher) -> None:
    for round in [*range(6, 300), *range(10**18, 10**18 - 300, -1), *range(-300, 0)]:
        pushed(victim, round=round)
    ahead = [delivery for key, delivery in victim.rounds._arrived.items() if key[0] > 5]
    assert len(ahead) == 2
    assert not victim.rounds._received, "receipts are told at once"
    victim.tick(0.2)
    assert victim.rounds._received == {}


def test_one_neighbour_far_ahead_leads_nobody_away(victim: Pusher) -> None:
    pushed(victim, "1", round=10**18)
    pushed(victim, "2", round=5)
    pushed(victim, "3", round=5)
    assert victim.rounds.next_round() == 6


def test_blocks_pushed_twice_count_once(victim: Pusher) -> None:
    for exchange in range(100):
        pushed(victim, exchange=exchange)
    assert victim.rounds.tally.stale == 99
    assert not victim.rounds.complete(0.1), "three blocks of four"


def test_receipts_and_answers_that_nobody_waits_for_do_nothing(victim: Pusher) -> None:
    for exchange in (-1, 0, 99, 2**63):
        victim.handle("1", "1", Settled((exchange,) * 4), None, 0.1)
        victim.handle("1", "1", Answer(exchange, 1, 0.0, PULSE, EMPTY), None, 0.1)
    assert (victim.rounds.link("1").under_way, victim.rounds.link("1").delivered) == (0, 0)


def test_what_is_not_finite_is_not_combined() -> None:
    """The weight of a part that isn't finite goes to the own state; the tensor is named."""

    async def main() -> None:
        shards = Shards(list(sources(2.0)), block_bytes=64, live=False)
        metrics = Metrics()
        pusher = Pusher(shards, optim.make("gossip"), LAN, Silence(), metrics, 0)  # type: ignore[arg-type]
        pusher.offer(1)
        pusher.rounds.begin(Plan(0, 0.5, (), (("1", 0.5),)), 0.0)
        pushed(pusher, round=0, weight=0.5, values=torch.full((20,), torch.nan, dtype=torch.float64))
        pusher._mixed = pusher.rounds.finish()
        pusher.settle()
        weight = shards.sources[0].read()
        assert weight is not None and set(weight.tolist()) == {2.0}
        assert metrics.snapshot()[("non_finite", "weight")] == 3
        await asyncio.sleep(0)

    run(main())
