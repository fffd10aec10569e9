"""Framing: a header describes its blocks, and a payload that isn't what its header says is refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from optim import Kind
from optim.codec import BFLOAT16, INT8, RAW, Codec, Form, writable
from p2p.agent.coding import suited
from p2p.agent.framing import Framing
from p2p.errors import WireError
from p2p.net.messages import Shard
from p2p.state.layout import lay_out
from p2p.state.schema import Entry

ENTRIES = [
    Entry("weight", Kind.PARAMETER, (10,), torch.float32),
    Entry("moment", Kind.NONNEGATIVE, (6,), torch.float32),
    Entry("steps", Kind.NEWEST, (2,), torch.int64),
]
BLOCKS = lay_out(ENTRIES, 16)[1]
"""Blocks 0 to 2 hold the weight (4, 4 and 2 elements), 3 and 4 the moment (4 and 2), 5 the steps (2)."""
FRAMING = Framing(BLOCKS)
TEN = torch.arange(10, dtype=torch.float32)


def framed(values: torch.Tensor = TEN, first: int = 0, count: int = 3, codec: Codec = RAW) -> tuple[Shard, memoryview]:
    blocks = FRAMING.range(first, count)
    data = torch.zeros(FRAMING.nbytes(blocks, codec), dtype=torch.uint8)
    at = 0
    for block, (_, piece) in zip(blocks, FRAMING.cut(data, blocks, codec), strict=True):
        codec.encode(values[at : at + block.elements], piece)
        at += block.elements
    payload = writable(data)
    return FRAMING.describe(first, count, blocks, codec, payload), payload


@pytest.mark.parametrize("codec", [RAW, BFLOAT16, INT8])
def test_what_was_framed_is_read(codec: Codec) -> None:
    shard, payload = framed(codec=codec)
    assert (shard.first, shard.count, shard.kind, shard.codec, shard.dtype, shard.elements) == (
        *(0, 3, Kind.PARAMETER, codec.name),
        *("float32", 10),
    )
    found, pieces = FRAMING.pieces(shard, payload, FRAMING.range(0, 3))
    assert found is codec
    assert [i for i, _ in pieces] == [0, 1, 2]
    values = [codec.decode(piece, torch.empty(BLOCKS[i].elements)) for i, piece in pieces]
    assert torch.allclose(torch.cat(values), TEN, atol=0.05)


def test_some_of_the_blocks_may_travel() -> None:
    data = torch.arange(6, dtype=torch.float32)
    sent = [BLOCKS[0], BLOCKS[2]]
    shard = FRAMING.describe(0, 3, sent, RAW, writable(data))
    _, pieces = FRAMING.pieces(shard, writable(data), sent)
    assert [(i, piece.view(torch.float32).tolist()) for i, piece in pieces] == [(0, [0.0, 1.0, 2.0, 3.0]), (2, [4.0, 5.0])]


def test_pieces_are_read_where_they_were_received() -> None:
    shard, payload = framed()
    _, pieces = FRAMING.pieces(shard, payload.toreadonly(), FRAMING.range(0, 3))
    whole = torch.frombuffer(payload, dtype=torch.uint8)
    assert [piece.data_ptr() - whole.data_ptr() for _, piece in pieces] == [0, 16, 32]


@pytest.mark.parametrize(
    ("first", "count"), [(-1, 2), (0, 0), (0, -3), (0, 7), (6, 1), (2, 2), (4, 2), (10**30, 1), (0, 10**30), (0, 65), (-5, 5)]
)
def test_blocks_that_no_message_may_name(first: int, count: int) -> None:
    with pytest.raises(WireError) as error:
        FRAMING.range(first, count)
    assert error.value.reason == "blocks"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"codec": "zip"}, "codec"),
        ({"codec": ""}, "codec"),
        ({"kind": int(Kind.SIGNED)}, "blocks"),
        ({"kind": 99}, "blocks"),
        ({"dtype": "float64"}, "blocks"),
        ({"dtype": ""}, "blocks"),
        ({"elements": 9}, "payload"),
        ({"elements": 10**18}, "payload"),
        ({"elements": -10}, "payload"),
        ({"codec": "bfloat16"}, "payload"),
        ({"checksum": 0}, "checksum"),
    ],
)
def test_a_header_that_lies_is_refused(change: dict[str, Any], reason: str) -> None:
    shard, payload = framed()
    with pytest.raises(WireError) as error:
        FRAMING.pieces(replace(shard, **change), payload, FRAMING.range(0, 3))
    assert error.value.reason == reason


@pytest.mark.parametrize("length", [0, 39, 41, 80])
def test_a_payload_of_another_length_is_refused(length: int) -> None:
    shard, _ = framed()
    with pytest.raises(WireError, match="payload"):
        FRAMING.pieces(shard, memoryview(bytes(length)), FRAMING.range(0, 3))
    with pytest.raises(WireError, match="payload"):
        FRAMING.pieces(shard, None, FRAMING.range(0, 3))


@pytest.mark.parametrize("bit", [0, 100, 319])
def test_one_flipped_bit_is_found(bit: int) -> None:
    shard, payload = framed()
    spoilt = bytearray(payload)
    spoilt[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WireError, match="checksum"):
        FRAMING.pieces(shard, memoryview(spoilt), FRAMING.range(0, 3))


@pytest.mark.parametrize(
    ("block", "wanted", "used"),
    [
        (0, INT8, INT8),
        (3, INT8, BFLOAT16),
        (3, BFLOAT16, BFLOAT16),
        (5, BFLOAT16, RAW),
        (5, INT8, RAW),
        (0, RAW, RAW),
        (3, RAW, RAW),
    ],
)
def test_values_that_a_codec_would_spoil_travel_by_a_milder_one(block: int, wanted: Codec, used: Codec) -> None:
    assert suited(wanted, BLOCKS[block]) is used


@pytest.mark.parametrize("name", ["int9", "random-k:0", "top-k:100", "sign"])
def test_a_codec_that_is_not_known_or_not_for_this_is_refused(name: str) -> None:
    shard, payload = framed()
    with pytest.raises(WireError, match="codec"):
        FRAMING.pieces(replace(shard, codec=name), payload, FRAMING.range(0, 3), (Form.VALUES, Form.PART))


def test_a_part_of_values_is_refused_where_all_of_them_are_meant() -> None:
    shard, payload = framed()
    with pytest.raises(WireError, match="codec"):
        FRAMING.pieces(replace(shard, codec="random-k:2"), payload, FRAMING.range(0, 3))


def test_a_codec_that_would_spoil_them_is_refused_from_others() -> None:
    shard, payload = framed(torch.ones(6), 3, 2)
    with pytest.raises(WireError, match="codec"):
        FRAMING.pieces(replace(shard, codec="int8"), payload, FRAMING.range(3, 2))
