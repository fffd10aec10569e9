"""Schemas: what tells two of them apart, and where."""

from dataclasses import replace

import torch

from optim.kinds import Kind
from p2p.state import Entry, Schema, first_difference

ENTRIES = [
    Entry("conv1.weight", Kind.PARAMETER, (16, 1, 3, 3), torch.float32),
    Entry("conv1.bias", Kind.PARAMETER, (16,), torch.float32),
    Entry("steps", Kind.NEWEST, (), torch.int64),
]


def test_it_describes_a_tensor() -> None:
    schema = Schema(ENTRIES, 64)
    assert schema.describe(0) == "conv1.weight: float32 (16, 1, 3, 3), parameter"
    assert schema.describe(2) == "steps: int64 (), newest"
    assert schema.describe(3) == "no tensor 3: 3 in all"


def test_the_fingerprint_covers_everything() -> None:
    first = ENTRIES[0]
    variants = [
        (ENTRIES, 64), (ENTRIES, 128), (ENTRIES[:2], 64), ([*ENTRIES[1:], first], 64),
        ([replace(first, name="conv2.weight"), *ENTRIES[1:]], 64), ([replace(first, kind=Kind.SIGNED), *ENTRIES[1:]], 64),
        ([replace(first, shape=(16, 1, 9)), *ENTRIES[1:]], 64), ([replace(first, dtype=torch.float64), *ENTRIES[1:]], 64),
    ]  # fmt: skip
    fingerprints = {Schema(entries, block_bytes).fingerprint for entries, block_bytes in variants}
    assert len(fingerprints) == len(variants)
    assert {len(f) for f in fingerprints} == {16}
    assert Schema(list(ENTRIES), 64).fingerprint in fingerprints


def test_the_fingerprint_is_the_same_on_every_machine() -> None:
    assert Schema(ENTRIES, 64).fingerprint.hex() == "b4e8b060afd3d715bde86eb459574bd7"
    assert Schema(ENTRIES, 64).hashes.hex() == "053e779c935ed82b1be33ac3"


def test_the_first_difference() -> None:
    own = Schema(ENTRIES, 64).hashes
    changed = Schema([ENTRIES[0], replace(ENTRIES[1], shape=(17,)), ENTRIES[2]], 64).hashes
    assert first_difference(own, own) is None
    assert first_difference(own, changed) == 1
    assert first_difference(own, own[:8]) == 2
    assert first_difference(own[:8], own) == 2
    assert first_difference(b"", own) == 0
