"""State from outside, on disk and from a donor, that is not what it says: each is refused with its reason, memory bounded."""

import asyncio
import hashlib
import json
import os
import pickle
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from optim.codec import RAW, writable
from optim.kinds import Kind
from p2p.agent.framing import Framing
from p2p.agent.transfer import Transfer
from p2p.config import TEST
from p2p.errors import JoinError, StateError, WireError
from p2p.net.keys import Identity
from p2p.net.messages import SnapshotBlocks, SnapshotOffer
from p2p.net.seal import Half, Seal
from p2p.report import Metrics
from p2p.state import Shards, manifest
from p2p.state.checkpoint import READING, Saved, newest, read, write
from p2p.state.manifest import MODEL, NAME, OPTIMIZER, STATE

# --- on disk -----------------------------------------------------------------------------------------------------


class Bomb:
    """A pickle that would leave a mark where it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "run", Saved(7, {"w": torch.ones(3)}, {}, {"step": 7}))


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    found = json.loads((folder / NAME).read_text())
    change(found)
    (folder / NAME).write_text(json.dumps(found))


def true_again(folder: Path, name: str) -> None:
    """The manifest's hash and size of a file that was replaced are made to agree: only the content is wrong."""
    data = (folder / name).read_bytes()
    part = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    changed(folder, lambda found: found["files"].update({name: part}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m["files"][MODEL].update(bytes=1 << 62), "a whole number is expected"),
        (lambda m: m["files"][MODEL].update(bytes=1 << 50), "the manifest says 1125899906842624"),
        (lambda m: m["files"][STATE].update(bytes=1 << 40), "at most"),
        (lambda m: m["files"][MODEL].update(bytes=-1), "a whole number is expected"),
        (lambda m: m["files"][MODEL].update(bytes=True), "a whole number is expected"),
        (lambda m: m["files"][MODEL].update(sha256="0" * 64), "its hash is not the manifest's"),
        (lambda m: m["files"].update({"../secret": m["files"][MODEL]}), "it names .*'../secret'"),
        (lambda m: m["files"].pop(STATE), "are expected"),
        (lambda m: m.update(step=1 << 60), "step is .* a whole number is expected"),
        (lambda m: m.update(format=2), "format 2; this release reads 1"),
        (lambda m: m.update(more=1), "not a manifest"),
        (lambda m: m.update(files=[1] * 10), "not a manifest"),
        (lambda m: m["files"].update({MODEL: 5}), "bytes and sha256 are expected"),
    ],
)
def test_a_manifest_that_lies_is_refused(folder: Path, change: Callable[[dict[str, Any]], object], said: str) -> None:
    changed(folder, change)
    with pytest.raises(StateError, match=said):
        read(folder)


def test_a_pickle_in_place_of_tensors_is_refused_and_not_loaded(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    for name in (MODEL, OPTIMIZER, STATE):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(pickle.dumps(Bomb(mark)))
        true_again(folder, name)
        with pytest.raises(READING):
            read(folder)
        (folder / name).write_bytes(before)
        true_again(folder, name)
    assert read(folder).step == 7
    assert not mark.exists()


def test_tensors_of_absurd_sizes_take_no_memory(folder: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4 << 40]}}).encode()
    (folder / MODEL).write_bytes(len(header).to_bytes(8, "little") + header)
    true_again(folder, MODEL)
    tracemalloc.start()
    with pytest.raises(READING):
        read(folder)
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


@pytest.mark.parametrize("text", ["[" * 30_000, "{}", "[1]", "null", "x", '{"format": NaN}', "1" * 60_000])
def test_what_is_no_manifest_is_refused(folder: Path, text: str) -> None:
    (folder / NAME).write_text(text)
    with pytest.raises(StateError):
        read(folder)


def test_a_manifest_without_end_is_not_read_to_its_end(folder: Path) -> None:
    with (folder / NAME).open("wb") as file:
        file.truncate(1 << 34)
    tracemalloc.start()
    with pytest.raises(StateError, match="longer than 65536 bytes"):
        read(folder)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


@pytest.mark.parametrize("name", [NAME, MODEL])
def test_a_pipe_that_trickles_for_ever_and_a_link_are_no_files(folder: Path, name: str) -> None:
    kept = folder.parent / "kept"
    (folder / name).rename(kept)
    os.mkfifo(folder / name)
    assert newest(folder.parent) is None
    (folder / name).unlink()
    (folder / name).symlink_to(kept)
    assert newest(folder.parent) is None


# --- from a donor ------------------------------------------------------------------------------------------------

DONOR, OTHER = Identity.from_seed(bytes(32)), Identity.from_seed(b"x" * 32)


class Plain:
    in_model = True
    owner = ""
    brought = None
    name, kind = "t", Kind.PARAMETER

    def __init__(self) -> None:
        self.tensor = torch.zeros(64)
        self.shape, self.dtype = (64,), torch.float32

    def read(self) -> torch.Tensor:
        return self.tensor

    create = read


class Joiner:
    """A transfer that has asked for its first bundle, in an agent of which only what it uses is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        source: Any = Plain()
        self.shards = Shards([source], block_bytes=64, live=True)
        self.framing = Framing(self.shards.blocks)
        self.metrics = Metrics()
        self.now = 0.0
        self.took: list[int] = []
        config = replace(TEST, exchange=replace(TEST.exchange, block_bytes=64, message_bytes=128))
        records = {i.node: SimpleNamespace(key=i.key) for i in (DONOR, OTHER)}
        post = SimpleNamespace(record=records.get, send=lambda *_: object())
        agent: Any = SimpleNamespace(
            task=SimpleNamespace(shards=self.shards), framing=self.framing, config=config, post=post, metrics=self.metrics,
            loop=SimpleNamespace(time=lambda: self.now), transfers=[], membership=None,
        )  # fmt: skip
        self.transfer = Transfer(agent, lambda index, *_: self.took.append(index), self.shards.blocks)
        self.halves = {identity.node: Half() for identity in (DONOR, OTHER)}
        for identity in (DONOR, OTHER):
            self.offered = self.offer(identity, identity)
            monkeypatch.setattr("p2p.agent.transfer.ask", self.answer)
            asyncio.run(self.transfer.invite(identity.node))
        self.transfer._send()

    async def answer(self, *_: object) -> SnapshotOffer:
        return self.offered

    def offer(self, owner: Identity, signer: Identity) -> SnapshotOffer:
        """With the half of a key of `owner`, signed by `signer`."""
        half = self.halves[owner.node].public
        said = manifest.head(self.shards.schema.fingerprint, 1, 5, 0, 0, "", half)
        return SnapshotOffer(1, 5, 0, 0, "", half, signer.sign(said))

    def seal(self, sealer: Identity = DONOR) -> Seal:
        """What the sealer has with the joiner."""
        return self.halves[sealer.node].seal(self.transfer._half.public)

    def blocks(self, sealer: Identity = DONOR, first: int = 0, snapshot: int = 1) -> tuple[SnapshotBlocks, memoryview]:
        """What an honest donor would send."""
        payload = writable(torch.full((32,), 3.0))
        shard = self.framing.describe(first, 2, self.framing.range(first, 2), RAW, payload)
        line = manifest.line(self.shards.schema.fingerprint, snapshot, first, 2)
        return SnapshotBlocks(snapshot, shard, self.seal(sealer).mark(line, payload)), payload


@pytest.fixture
def joiner(monkeypatch: pytest.MonkeyPatch) -> Joiner:
    return Joiner(monkeypatch)


def test_an_honest_bundle_is_taken_once(joiner: Joiner) -> None:
    message, payload = joiner.blocks()
    for _ in range(2):
        joiner.transfer.received(DONOR.node, message, payload)
    assert joiner.took == [0, 1]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda m: replace(m, mark=bytes(48)), "seal"),
        (lambda m: replace(m, mark=m.mark[:-1]), "seal"),
        (lambda m: replace(m, mark=m.mark[:16]), "seal"),
        (lambda m: replace(m, mark=b""), "seal"),
        (lambda m: replace(m, shard=replace(m.shard, codec="int8")), "payload"),
        (lambda m: replace(m, shard=replace(m.shard, codec="bfloat16")), "payload"),
        (lambda m: replace(m, shard=replace(m.shard, elements=1 << 62)), "payload"),
        (lambda m: replace(m, shard=replace(m.shard, checksum=1)), "checksum"),
        (lambda m: replace(m, shard=replace(m.shard, kind=3)), "blocks"),
    ],
)
def test_a_bundle_that_lies_is_refused_counted_and_fetched_elsewhere(
    joiner: Joiner, spoil: Callable[[Any], Any], reason: str
) -> None:
    message, payload = joiner.blocks()
    with pytest.raises(WireError) as refused:
        joiner.transfer.received(DONOR.node, spoil(message), payload)
    assert refused.value.reason == reason
    assert joiner.took == []
    assert joiner.metrics.snapshot() == {("state_refused", DONOR.node[:10]): 1}
    assert 0 in joiner.transfer.download._todo or joiner.transfer.download.wants(OTHER.node, 0, 2)


def test_other_bytes_under_a_seal_are_refused_whatever_their_checksum_says(joiner: Joiner) -> None:
    """Who stands in between can make the checksum right, and a seal of its own, but none of the donor's."""
    message, _ = joiner.blocks()
    forged = writable(torch.full((32,), 4.0))
    shard = joiner.framing.describe(0, 2, joiner.framing.range(0, 2), RAW, forged)
    with pytest.raises(WireError, match="seal"):
        joiner.transfer.received(DONOR.node, replace(message, shard=shard), forged)


def test_a_seal_is_of_its_own_blocks_alone(joiner: Joiner) -> None:
    message, payload = joiner.blocks(first=2)
    shard = replace(message.shard, first=0)
    with pytest.raises(WireError, match="seal"):
        joiner.transfer.received(DONOR.node, replace(message, shard=shard), payload)


def test_a_member_can_not_send_in_a_donors_name(joiner: Joiner) -> None:
    message, payload = joiner.blocks(sealer=OTHER)
    with pytest.raises(WireError, match="seal"):
        joiner.transfer.received(DONOR.node, message, payload)


@pytest.mark.parametrize("change", [{"snapshot": 2}, {"first": 2}])
def test_what_was_not_asked_for_takes_nothing_and_is_no_progress(joiner: Joiner, change: dict[str, int]) -> None:
    """An endless trickle of it does not keep a donor: its silence counts from the last bundle that was wanted."""
    message, payload = joiner.blocks(**change)
    while joiner.now < TEST.join.progress:
        joiner.transfer.received(DONOR.node, message, payload)
        joiner.now += 0.5
    joiner.transfer._send()
    assert DONOR.node not in joiner.transfer.download.sources
    assert joiner.took == []


def test_a_head_that_another_has_signed_is_refused(joiner: Joiner) -> None:
    """Nor does a member's own half of a key become a donor's."""
    joiner.offered = joiner.offer(owner=OTHER, signer=OTHER)
    with pytest.raises(JoinError, match="its manifest is not signed by it"):
        asyncio.run(joiner.transfer.invite(DONOR.node))
    joiner.offered = replace(joiner.offer(DONOR, DONOR), half=joiner.halves[OTHER.node].public)
    with pytest.raises(JoinError, match="its manifest is not signed by it"):
        asyncio.run(joiner.transfer.invite(DONOR.node))


@pytest.mark.parametrize("half", [b"", bytes(31), bytes(32), b"\1" + bytes(31)])
def test_a_half_of_a_key_that_is_none_is_refused(joiner: Joiner, half: bytes) -> None:
    said = manifest.head(joiner.shards.schema.fingerprint, 1, 5, 0, 0, "", half)
    joiner.offered = SnapshotOffer(1, 5, 0, 0, "", half, DONOR.sign(said))
    with pytest.raises(JoinError, match="no half of a key"):
        asyncio.run(joiner.transfer.invite(DONOR.node))
