"""The donor: a snapshot that doesn't change, signed bundles, two guests at most, and nothing for the greedy."""

import asyncio
import hashlib
from collections.abc import Coroutine
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
from p2p.net.messages import BlocksRequest, Message, Refusal, SnapshotBlocks, SnapshotOffer
from p2p.state import Shards, manifest

IDENTITY = Identity.from_seed(bytes(32))
OFFER = SnapshotOffer(0, 12, 3, 7, '{"scheduler": {}}', b"")
CONFIG = replace(TEST, exchange=replace(TEST.exchange, block_bytes=64, message_bytes=128))


class Plain:
    in_model = True
    owner = ""

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


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_head_and_bundles_are_signed_and_of_one_moment() -> None:
    model, shards, post, donor = made()
    run(donor.requested("a" * 32, 1, OFFER, 0.0, "nobody"))
    model.fill_(-1)
    shards.meet(1)
    donor.blocks("a" * 32, 1, BlocksRequest(1, 2, 2), 0.1)
    (offer, _), (blocks, payload) = post.sent
    assert isinstance(offer, SnapshotOffer) and isinstance(blocks, SnapshotBlocks)
    schema = shards.schema.fingerprint
    assert (offer.snapshot, offer.step, offer.epoch, offer.round) == (1, 12, 3, 7)
    assert keys.verify(IDENTITY.key, manifest.head(schema, 1, 12, 3, 7, OFFER.extras), offer.signature)
    assert payload == torch.arange(32, 64, dtype=torch.float32).numpy().tobytes()
    assert blocks.sha256 == hashlib.sha256(payload).digest()
    assert keys.verify(IDENTITY.key, manifest.line(schema, 1, 2, 2, blocks.sha256), blocks.signature)
    assert not keys.verify(IDENTITY.key, manifest.line(schema, 1, 0, 2, blocks.sha256), blocks.signature)


def test_two_guests_at_most_share_one_snapshot_and_the_third_is_told_whom_to_ask() -> None:
    _, _, post, donor = made()
    for guest in "abc":
        run(donor.requested(guest * 32, guest, OFFER, 0.0, "node 0123456789 at tcp://10.0.0.2:7000"))
    first, second, third = [message for message, _ in post.sent]
    assert isinstance(first, SnapshotOffer) and isinstance(second, SnapshotOffer) and isinstance(third, Refusal)
    assert (first.snapshot, second.snapshot, donor.guests) == (1, 1, 2)
    assert third.reason == "busy"
    assert third.theirs == "2 joiners are being served; try node 0123456789 at tcp://10.0.0.2:7000"
    donor.done("a" * 32, 1.0)
    run(donor.requested("c" * 32, "c", OFFER, 1.0, ""))
    assert isinstance(post.sent[-1][0], SnapshotOffer)


def test_who_exchanges_while_it_downloads_gets_each_block_as_it_is_when_asked_for() -> None:
    model, shards, post, donor = made()
    run(donor.requested("a" * 32, 1, OFFER, 0.0, "nobody", whole=False))
    for value in (-1.0, -2.0):
        model.fill_(value)
        shards.meet(1)
        donor.blocks("a" * 32, 1, BlocksRequest(1, 2, 2), 0.1)
    (_, _), (_, first), (blocks, second) = post.sent
    assert (first, second) == tuple(torch.full((32,), v).numpy().tobytes() for v in (-1.0, -2.0))
    assert isinstance(blocks, SnapshotBlocks)
    said = manifest.line(shards.schema.fingerprint, 1, 2, 2, hashlib.sha256(second).digest())
    assert keys.verify(IDENTITY.key, said, blocks.signature)


def test_both_kinds_of_guests_are_two_at_most_and_who_asks_again_is_one() -> None:
    _, _, post, donor = made()
    for guest, whole in (("a", True), ("b", False), ("b", False), ("c", False), ("c", True)):
        run(donor.requested(guest * 32, guest, OFFER, 0.0, "again in a while", whole))
    assert [type(message) for message, _ in post.sent] == [SnapshotOffer] * 3 + [Refusal] * 2
    assert donor.guests == 2
    donor.blocks("b" * 32, 1, BlocksRequest(2, 0, 1), 0.0)
    assert len(post.sent) == 5, "the offer that was replaced is gone"


def test_a_snapshot_that_is_far_behind_is_shared_with_nobody_new() -> None:
    _, _, post, donor = made()
    lag = CONFIG.join.lag
    for guest, step in (("a", 0), ("b", lag), ("c", lag + 1)):
        donor.done("b" * 32, 0.0)
        run(donor.requested(guest * 32, guest, replace(OFFER, step=step), 0.0, "again in a while"))
    assert [type(message) for message, _ in post.sent] == [SnapshotOffer, SnapshotOffer, Refusal]
    assert [message.step for message, _ in post.sent[:2] if isinstance(message, SnapshotOffer)] == [0, 0]


def test_the_snapshot_goes_with_its_last_guest() -> None:
    _, _, post, donor = made()
    run(donor.requested("a" * 32, 1, OFFER, 0.0, ""))
    donor.sweep(TEST.join.progress)
    assert donor.guests == 1
    donor.sweep(TEST.join.progress + 0.1)
    assert donor.guests == 0
    donor.blocks("a" * 32, 1, BlocksRequest(1, 0, 1), 20.0)
    assert len(post.sent) == 1
    run(donor.requested("a" * 32, 1, OFFER, 21.0, ""))
    assert isinstance(post.sent[-1][0], SnapshotOffer) and post.sent[-1][0].snapshot == 2


@pytest.mark.parametrize(("first", "count"), [(0, 3), (-1, 1), (3, 2), (0, 0), (0, 1 << 40)])
def test_the_greedy_get_nothing(first: int, count: int) -> None:
    _, _, post, donor = made()
    run(donor.requested("a" * 32, 1, OFFER, 0.0, ""))
    with pytest.raises(WireError):
        donor.blocks("a" * 32, 1, BlocksRequest(1, first, count), 0.1)
    assert len(post.sent) == 1


def test_strangers_and_other_snapshots_are_passed_over() -> None:
    _, _, post, donor = made()
    donor.blocks("a" * 32, 1, BlocksRequest(1, 0, 1), 0.0)
    run(donor.requested("a" * 32, 1, OFFER, 0.0, ""))
    donor.blocks("b" * 32, 1, BlocksRequest(1, 0, 1), 0.0)
    donor.blocks("a" * 32, 1, BlocksRequest(2, 0, 1), 0.0)
    assert len(post.sent) == 1
