"""The donor: a snapshot that doesn't change, sealed bundles, two guests at most, and nothing for the greedy."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from optim.kinds import Kind
from p2p.agent.donor import Donor
from p2p.config import TEST
from p2p.errors import WireError
from p2p.net import keys
from p2p.net.keys import Identity
from p2p.net.messages import BlocksRequest, Message, Refusal, SnapshotBlocks, SnapshotOffer, SnapshotRequest
from p2p.net.seal import Half
from p2p.state import Shards, manifest

IDENTITY = Identity.from_seed(bytes(32))
OFFER = SnapshotOffer(0, 12, 3, 7, '{"scheduler": {}}', b"", b"")
HALF = Half()
WHOLE, PRESENT = SnapshotRequest(True, HALF.public), SnapshotRequest(False, HALF.public)
CONFIG = replace(TEST, exchange=replace(TEST.exchange, block_bytes=64, message_bytes=128))


class Plain:
    in_model = True
    owner = ""
    brought = None

    def __init__(self, tensor: torch.Tensor) -> None:
        self.name, self.kind, self.tensor, self.shape, self.dtype = (
            "t",
            Kind.PARAMETER,
            tensor,
            tuple(tensor.shape),
            tensor.dtype,
        )

    def read(self) -> torch.Tensor:
        return self.tensor

    create = read


class Post:
    """Keeps what is answered."""

    def __init__(self) -> None:
        self.sent: list[tuple[Message, bytes]] = []

    def answer(self, route: object, message: Message, payload: memoryview | None = None) -> object:
        self.sent.append((message, bytes(payload or b"")))
        return SimpleNamespace(done=True)


def made(elements: int = 64) -> tuple[torch.Tensor, Shards, Post, Donor]:
    model = torch.arange(elements, dtype=torch.float32)
    source: Any = Plain(model)
    shards, post = Shards([source], block_bytes=64, live=True), Post()
    return model, shards, post, Donor(shards, CONFIG, post, IDENTITY.sign)  # type: ignore[arg-type]


def ask(
    donor: Donor, guest: str, now: float = 0.0, instead: str = "", step: int = 12, request: SnapshotRequest = WHOLE
) -> None:
    donor.requested(guest * 32, guest, request, replace(OFFER, step=step), now, instead)
    asyncio.run(donor.fill())


def sealed(shards: Shards, offer: Message, blocks: Message, payload: bytes) -> bool:
    """Whether the guest finds that this donor has sent these bytes as the blocks that it asked for."""
    assert isinstance(offer, SnapshotOffer) and isinstance(blocks, SnapshotBlocks)
    line = manifest.line(shards.schema.fingerprint, offer.snapshot, blocks.shard.first, blocks.shard.count)
    return HALF.seal(offer.half).verify(blocks.mark, line, payload)


def test_the_head_is_signed_and_bundles_are_sealed_and_of_one_moment() -> None:
    model, shards, post, donor = made()
    ask(donor, "a")
    model.fill_(-1)
    shards.meet(1)
    donor.blocks("a" * 32, "a", BlocksRequest(1, 2, 2), 0.1)
    (offer, _), (blocks, payload) = post.sent
    assert isinstance(offer, SnapshotOffer) and isinstance(blocks, SnapshotBlocks)
    schema = shards.schema.fingerprint
    assert (offer.snapshot, offer.step, offer.epoch, offer.round) == (1, 12, 3, 7)
    assert keys.verify(IDENTITY.key, manifest.head(schema, 1, 12, 3, 7, OFFER.extras, offer.half), offer.signature)
    assert payload == torch.arange(32, 64, dtype=torch.float32).numpy().tobytes()
    assert sealed(shards, offer, blocks, payload)
    assert not sealed(shards, offer, blocks, payload[::-1])
    assert not sealed(shards, offer, replace(blocks, shard=replace(blocks.shard, first=0)), payload)


def test_two_guests_at_most_share_one_snapshot_and_the_third_is_told_whom_to_ask() -> None:
    _, _, post, donor = made()
    for guest in "abc":
        ask(donor, guest, instead="node 0123456789 at tcp://10.0.0.2:7000")
    first, second, third = [message for message, _ in post.sent]
    assert isinstance(first, SnapshotOffer) and isinstance(second, SnapshotOffer) and isinstance(third, Refusal)
    assert (first.snapshot, second.snapshot, donor.guests) == (1, 1, 2)
    assert third.reason == "busy"
    assert third.theirs == "2 joiners are being served; try node 0123456789 at tcp://10.0.0.2:7000"
    donor.done("a" * 32, 1.0)
    ask(donor, "c", 1.0)
    assert isinstance(post.sent[-1][0], SnapshotOffer)


def test_who_exchanges_while_it_downloads_gets_each_block_as_it_is_when_asked_for() -> None:
    model, shards, post, donor = made()
    ask(donor, "a", request=PRESENT)
    for value in (-1.0, -2.0):
        model.fill_(value)
        shards.meet(1)
        donor.blocks("a" * 32, "a", BlocksRequest(1, 2, 2), 0.1)
    (offer, _), (_, first), (blocks, second) = post.sent
    assert (first, second) == tuple(torch.full((32,), v).numpy().tobytes() for v in (-1.0, -2.0))
    assert sealed(shards, offer, blocks, second)


def test_both_kinds_of_guests_are_two_at_most_and_who_asks_again_is_one() -> None:
    _, _, post, donor = made()
    for guest, whole in (("a", True), ("b", False), ("b", False), ("c", False), ("c", True)):
        ask(donor, guest, request=WHOLE if whole else PRESENT)
    assert [type(message) for message, _ in post.sent] == [SnapshotOffer] * 3 + [Refusal] * 2
    assert donor.guests == 2
    donor.blocks("b" * 32, "b", BlocksRequest(2, 0, 1), 0.0)
    assert len(post.sent) == 5, "the offer that was replaced is gone"


def test_a_snapshot_that_is_far_behind_is_shared_with_nobody_new() -> None:
    _, _, post, donor = made()
    lag = CONFIG.join.lag
    for guest, step in (("a", 0), ("b", lag), ("c", lag + 1)):
        donor.done("b" * 32, 0.0)
        ask(donor, guest, step=step)
    assert [type(message) for message, _ in post.sent] == [SnapshotOffer, SnapshotOffer, Refusal]
    assert [message.step for message, _ in post.sent[:2] if isinstance(message, SnapshotOffer)] == [0, 0]


def test_the_snapshot_goes_with_its_last_guest() -> None:
    _, _, post, donor = made()
    ask(donor, "a")
    donor.sweep(TEST.join.progress)
    assert donor.guests == 1
    donor.sweep(TEST.join.progress + 0.1)
    assert donor.guests == 0
    donor.blocks("a" * 32, "a", BlocksRequest(1, 0, 1), 20.0)
    assert len(post.sent) == 1
    ask(donor, "a", 21.0)
    assert isinstance(post.sent[-1][0], SnapshotOffer) and post.sent[-1][0].snapshot == 2


@pytest.mark.parametrize(("first", "count"), [(0, 3), (-1, 1), (3, 2), (0, 0), (0, 1 << 40)])
def test_the_greedy_get_nothing(first: int, count: int) -> None:
    _, _, post, donor = made()
    ask(donor, "a")
    with pytest.raises(WireError):
        donor.blocks("a" * 32, "a", BlocksRequest(1, first, count), 0.1)
    assert len(post.sent) == 1


def test_strangers_and_other_snapshots_are_passed_over() -> None:
    _, _, post, donor = made()
    donor.blocks("a" * 32, "a", BlocksRequest(1, 0, 1), 0.0)
    ask(donor, "a")
    donor.blocks("b" * 32, "b", BlocksRequest(1, 0, 1), 0.0)
    donor.blocks("a" * 32, "a", BlocksRequest(2, 0, 1), 0.0)
    assert len(post.sent) == 1


@pytest.mark.parametrize("half", [b"", bytes(32), bytes(33)])
def test_who_gives_no_half_of_a_key_is_no_guest(half: bytes) -> None:
    _, _, post, donor = made()
    with pytest.raises(WireError, match="no half of a key"):
        ask(donor, "a", request=SnapshotRequest(True, half))
    assert (donor.guests, post.sent) == (0, [])
    donor.sweep(0.0)
    assert donor._pinned == {}
