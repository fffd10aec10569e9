"""Messages survive the wire exactly; whatever is off is refused with a reason."""

import math
from dataclasses import fields, replace
from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p.errors import WireError
from p2p.net import wire
from p2p.net.messages import (
    TABLE,
    Answer,
    Ask,
    Contract,
    Envelope,
    Knock,
    Message,
    News,
    Ping,
    Pulse,
    Record,
    Settled,
    Shard,
    SnapshotRequest,
    Terms,
    Welcome,
)

ENVELOPE = Envelope(b"s" * 16, "0123456789abcdef" * 2, 1_785_000_000_000, 2**64 - 1)
SHARD = Shard(3, 4, 0, "none", "float32", 262_144, wire.checksum(b"payload"))
ASK = Ask(7, 0.5, Pulse(100, 0.25), (1, 2, 3), (0.5, 0.0), SHARD, (17,))


def raw(number: Any, body: Any, version: Any = 1, envelope: tuple[Any, ...] | None = None) -> bytes:
    """A header as any program might write it."""
    head = (ENVELOPE.swarm, ENVELOPE.node, ENVELOPE.incarnation, ENVELOPE.view) if envelope is None else envelope
    packed: bytes = msgpack.packb((version, number, *head, body))
    return packed


def refusal(header: bytes, payload: int | None) -> str:
    """Why the header is refused; empty where it is not."""
    try:
        wire.decode(header, payload)
    except WireError as error:
        return error.reason
    return ""


ints = st.integers(-(2**63), 2**64 - 1)
st.register_type_strategy(int, ints)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(str, st.text(max_size=20))
st.register_type_strategy(bytes, st.binary(max_size=70))


def lengths(message: Message) -> int | None:
    shard = getattr(message, "shard", None)
    return 1 if shard is not None and shard.elements else None


@pytest.mark.parametrize("cls", TABLE.values(), ids=lambda cls: cls.__name__)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_every_message_comes_back_equal(cls: type, data: st.DataObject) -> None:
    message = data.draw(st.from_type(cls))
    header = wire.encode(ENVELOPE, message)
    assert wire.decode(header, lengths(message)) == (ENVELOPE, message)


def test_the_table_holds_every_message() -> None:
    assert set(TABLE.values()) == set(get_args(Message))


def test_the_layout_is_fixed() -> None:
    assert wire.encode(ENVELOPE, ASK) == raw(
        30,
        (7, 0.5, (100, 0.25, 0.0), (1, 2, 3), (0.5, 0.0), (3, 4, 0, "none", "float32", 262_144, SHARD.checksum), (17,)),
    )
    assert wire.encode(ENVELOPE, SnapshotRequest(True, b"")) == raw(20, (True, b""))
    assert wire.encode(ENVELOPE, Knock(1)) == raw(1, (1,))


def test_a_whole_number_may_stand_for_a_float() -> None:
    _, answer = wire.decode(wire.encode(ENVELOPE, Answer(1, 3, 1, Pulse(1, 0), SHARD)), 9)
    assert isinstance(answer, Answer)
    assert type(answer.weight) is type(answer.pulse.pace) is float


REFUSED = [
    ("too long", bytes(wire.HEADER_BYTES + 1), None, "size"),
    ("empty", b"", None, "msgpack"),
    ("cut short", raw(1, (1,))[:-1], None, "msgpack"),
    ("more behind it", raw(1, (1,)) + b"\0", None, "msgpack"),
    ("a map", raw(1, {"version": 1}), None, "msgpack"),
    ("an extension", raw(1, (msgpack.ExtType(1, b"x"),)), None, "msgpack"),
    ("a timestamp", raw(1, (msgpack.Timestamp(1),)), None, "msgpack"),
    ("not UTF-8", raw(13, (1,)).replace(b"0123", b"\xff\xff\xff\xff"), None, "msgpack"),
    ("an array said to be huge", raw(34, (0,))[:-2] + b"\xdd\xff\xff\xff\xff", None, "msgpack"),
    ("too many elements", raw(34, (tuple(range(wire.ITEMS + 1)),)), None, "msgpack"),
    ("too deep", raw(1, 0)[:-1] + b"\x91" * 100_000, None, "msgpack"),
    ("no array", b"\x01", None, "msgpack"),
    ("not a header", msgpack.packb(("x", 1)), None, "fields"),
    ("an eighth element", msgpack.packb((1, 1, *"abcd", (1,), 8)), None, "fields"),
    ("another version", raw(1, (1,), version=2), None, "protocol"),
    ("another version, another layout", msgpack.packb((900, {"a": 1})), None, "protocol"),
    ("unknown type", raw(99, ()), None, "type"),
    ("a type that equals a number", raw(True, (1,)), None, "type"),
    ("a type that can't be a number", raw((1,), (1,)), None, "type"),
    ("no fields", raw(1, 1), None, "fields"),
    ("a field too few", raw(13, ()), None, "fields"),
    ("a field too many", raw(13, (1, 2)), None, "fields"),
    ("a nested field too few", raw(11, (1, (1,), ((), ()))), None, "fields"),
    ("nil", raw(13, (None,)), None, "value"),
    ("a float for an int", raw(13, (1.0,)), None, "value"),
    ("a bool for an int", raw(13, (True,)), None, "value"),
    ("an int for a bool", raw(15, (((), (), ()), 1)), None, "value"),
    ("a str for bytes", raw(5, ("seed", b"x", 0)), None, "value"),
    ("an int for an array", raw(34, (5,)), None, "value"),
    ("a str in an array of ints", raw(34, ((5, "x"),)), None, "value"),
    ("a str for a record", raw(14, (("x", (), ()),)), None, "value"),
    ("a number for a record", raw(14, (((1,), (), ()),)), None, "value"),
    ("not a number", raw(11, (1, (1, math.nan, 0.0), ((), (), ()))), None, "value"),
    ("infinite", raw(11, (1, (1, -math.inf, 0.0), ((), (), ()))), None, "value"),
    ("a short swarm id", raw(13, (1,), envelope=(b"s", ENVELOPE.node, 1, 1)), None, "value"),
    ("a node id that is none", raw(13, (1,), envelope=(ENVELOPE.swarm, "G" * 32, 1, 1)), None, "value"),
    ("a node id with a line's end", raw(13, (1,), envelope=(ENVELOPE.swarm, "a" * 31 + "\n", 1, 1)), None, "value"),
    ("a negative incarnation", raw(13, (1,), envelope=(ENVELOPE.swarm, ENVELOPE.node, -1, 1)), None, "value"),
    ("a map for an incarnation", raw(13, (1,), envelope=(ENVELOPE.swarm, ENVELOPE.node, {}, 1)), None, "value"),
    ("a payload behind a nack", raw(13, (1,)), 5, "payload"),
    ("an empty payload behind a nack", raw(13, (1,)), 0, "payload"),
    ("an ask without its payload", wire.encode(ENVELOPE, ASK), None, "payload"),
    ("an ask with an empty payload", wire.encode(ENVELOPE, ASK), 0, "payload"),
    ("a payload without elements", wire.encode(ENVELOPE, replace(ASK, shard=replace(SHARD, elements=0))), 5, "payload"),
    ("a payload too long", wire.encode(ENVELOPE, ASK), wire.PAYLOAD_BYTES + 1, "payload"),
]


@pytest.mark.parametrize(("header", "payload", "reason"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_is_off_is_refused(header: bytes, payload: int | None, reason: str) -> None:
    assert refusal(header, payload) == reason
    assert reason in wire.REASONS


def test_another_version_is_told() -> None:
    with pytest.raises(WireError, match="protocol: version 2; ours is 1"):
        wire.decode(raw(1, (2,), version=2), None)


def test_who_spoke_before_is_still_checked() -> None:
    """What equals a sound envelope is not one."""
    for incarnation, reason in ((1, ""), (True, "value"), (1.0, "value"), (1, "")):
        header = raw(13, (1,), envelope=(ENVELOPE.swarm, ENVELOPE.node, incarnation, 1))
        assert refusal(header, None) == reason


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_damaged_header_is_refused_or_read_but_never_worse(data: st.DataObject) -> None:
    header = bytearray(wire.encode(ENVELOPE, ASK))
    for _ in range(data.draw(st.integers(1, 4))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    assert refusal(bytes(header), 7) in ("", *wire.REASONS)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Settled((2**64,)), "value"),
        (Settled(("a" * wire.HEADER_BYTES,)), "size"),  # type: ignore[arg-type]
        (Knock(object()), "value"),  # type: ignore[arg-type]
        (Ping(1, "\ud800", Pulse(1, 1.0), News()), "value"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_home(message: Message, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        wire.encode(ENVELOPE, message)
    assert caught.value.reason == reason


def test_nested_records_keep_their_place() -> None:
    record = Record(b"k" * 32, "tcp://h:1", "tcp://h:2", 5, 1, "", True, b"c" * 16, b"s" * 64)
    contract = Contract(b"", b"", "sgd", "async", "ring", b"", -1)
    for message in (Welcome(News((record, record))), Terms(1, contract, record, 4, ("tcp://h:3",))):
        assert wire.decode(wire.encode(ENVELOPE, message), None)[1] == message


def test_a_payload_is_checked() -> None:
    wire.check_payload(SHARD, memoryview(b"payload"))
    with pytest.raises(WireError, match="checksum: blocks 3 to 6"):
        wire.check_payload(SHARD, b"pay1oad")
    with pytest.raises(WireError, match="payload: "):
        wire.check_payload(SHARD, bytes(wire.PAYLOAD_BYTES + 1))


def test_the_checksum_is_xxh3() -> None:
    assert wire.checksum(b"") == 0x2D06800538D394C2  # from the xxHash specification


def test_every_field_is_read() -> None:
    """A changed field changes the header: none is left out of the layout."""
    plain = wire.encode(ENVELOPE, ASK)
    changed = {int: lambda v: v + 1, float: lambda v: v / 2, str: lambda v: v + "x"}
    for field in fields(Shard):
        value = getattr(SHARD, field.name)
        assert wire.encode(ENVELOPE, replace(ASK, shard=replace(SHARD, **{field.name: changed[type(value)](value)}))) != plain
