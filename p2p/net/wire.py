"""Messages to frames and back: strict msgpack, compiled once from the dataclasses' annotations.

A header is the array ``[PROTOCOL, type number, swarm, node, incarnation, view, [fields...]]``; a nested dataclass is
the array of its fields. Every version's header begins with an array whose first element is the version, so nodes of
different versions can tell each other so. Whatever else is off is a `WireError` whose `reason` is one of `REASONS`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, get_args, get_origin, get_type_hints

import msgpack
import xxhash

from p2p.errors import WireError
from p2p.net.messages import PROTOCOL, TABLE, Envelope, Message, Shard

HEADER_BYTES = 256 * 1024
"""The longest header."""
PAYLOAD_BYTES = 8 * 1024 * 1024
"""The longest payload."""
ITEMS = 4096
"""The most elements in one tuple: nested arrays of claimed lengths can't take more than tens of MiB before they fail."""
REASONS = ("size", "msgpack", "protocol", "type", "fields", "value", "payload", "checksum")

Reader = Callable[[Any], Any]  # checks one decoded value and turns it into what the dataclass holds


def encode(envelope: Envelope, message: Message) -> bytes:
    """The header frame of `message`; WireError where it is longer than `HEADER_BYTES` or holds what can't be sent."""
    body = (PROTOCOL, _NUMBERS[type(message)], *_flat_envelope(envelope), _flatten(message))
    try:
        header: bytes = msgpack.packb(body, default=_flatten, buf_size=512)
    except (OverflowError, TypeError, UnicodeEncodeError) as error:
        raise WireError("value", f"{type(message).__name__}: {error}") from None
    if len(header) > HEADER_BYTES:
        raise WireError("size", f"a header of {len(header)} bytes ({type(message).__name__}); {HEADER_BYTES} at most")
    return header


def decode(header: bytes, payload_bytes: int | None) -> tuple[Envelope, Message]:
    """Who speaks, and what; `payload_bytes` is the length of the payload frame, None where there is none."""
    if len(header) > HEADER_BYTES:
        raise WireError("size", f"a header of {len(header)} bytes; {HEADER_BYTES} at most")
    if not header.startswith(_PREFIX):
        raise _foreign(header)
    _, number, swarm, node, incarnation, view, body = _unpack(header)
    read = _READERS.get(number) if type(number) is int else None
    if read is None:
        raise WireError("type", f"no message of type {number!r}"[:80])
    try:
        envelope = _read_envelope(swarm, node, incarnation, view)
    except TypeError:  # a map: it can't be looked up
        raise WireError("value", "Envelope") from None
    if type(body) is not tuple:
        raise WireError("fields", "no array of fields")
    message: Message = read(body)
    _match_payload(message, payload_bytes)
    return envelope, message


def checksum(payload: memoryview | bytes) -> int:
    """xxh3 of the payload's bytes, 64 bits."""
    return xxhash.xxh3_64_intdigest(payload)


def check_payload(shard: Shard, payload: memoryview | bytes) -> None:
    """WireError unless `payload` is what the shard's header announced."""
    if len(payload) > PAYLOAD_BYTES:
        raise WireError("payload", f"{len(payload)} bytes; {PAYLOAD_BYTES} at most")
    if checksum(payload) != shard.checksum:
        raise WireError("checksum", f"blocks {shard.first} to {shard.first + shard.count - 1}: damaged on the way")


# --- inside ----------------------------------------------------------------------------------------------------

_PREFIX = bytes((0x97, PROTOCOL))  # an array of seven, and the version
_HEX_ID = re.compile(r"[0-9a-f]{32}").fullmatch


def _unpack(header: bytes) -> tuple[Any, ...]:
    try:
        found: tuple[Any, ...] = msgpack.unpackb(
            header, use_list=False, max_array_len=ITEMS, max_map_len=0, max_ext_len=0, strict_map_key=True
        )
    except ValueError as error:  # malformed, cut short, too long, too deep, extra bytes, not UTF-8
        raise WireError("msgpack", str(error)[:80] or type(error).__name__) from None
    return found


def _foreign(header: bytes) -> WireError:
    """Why a header that doesn't begin as ours does is refused."""
    unpacker = msgpack.Unpacker(max_buffer_size=HEADER_BYTES, max_array_len=0, max_map_len=0)
    unpacker.feed(header)
    try:
        unpacker.read_array_header()
        version = unpacker.unpack()
    except (ValueError, msgpack.UnpackException) as error:
        return WireError("msgpack", str(error)[:80] or type(error).__name__)
    if type(version) is not int or version == PROTOCOL:
        return WireError("fields", "not a header")
    return WireError("protocol", f"version {version}; ours is {PROTOCOL}")


@lru_cache(maxsize=4096, typed=True)
def _read_envelope(*values: Any) -> Envelope:
    """A node says the same of itself for long: it is checked once, and only what is sound (and short) is remembered."""
    envelope: Envelope = _envelope(values)
    if len(envelope.swarm) != 16 or not _HEX_ID(envelope.node) or envelope.incarnation < 0 or envelope.view < 0:
        raise WireError("value", "Envelope")
    return envelope


def _match_payload(message: Message, length: int | None) -> None:
    """A payload comes exactly where a shard has elements."""
    shard = getattr(message, "shard", None)
    expected = shard is not None and shard.elements != 0
    if bool(length) != expected or (shard is None and length is not None):
        raise WireError("payload", f"{type(message).__name__} with {length or 'no'} bytes of payload")
    if length is not None and length > PAYLOAD_BYTES:
        raise WireError("payload", f"{length} bytes; {PAYLOAD_BYTES} at most")


# --- the schema, compiled ---------------------------------------------------------------------------------------


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise WireError("value", "not a finite number")
    return value


def _repeated(item: type, read_item: Reader | None) -> Reader:
    def read(values: Any) -> Any:
        if any(type(value) is not item for value in values):
            raise WireError("value", f"an array of {item.__name__} expected")
        return tuple(map(read_item, values)) if read_item else values

    return read


@cache
def _hints(cls: type) -> dict[str, Any]:
    """Each annotation is compiled: once, or importing takes long."""
    return get_type_hints(cls)


@cache
def _struct(cls: type) -> Reader:
    """Reads one dataclass: all plain fields are checked at once, by their types; the others have readers."""
    hints = _hints(cls)
    schema = [_field(hints[field.name]) for field in fields(cls)]
    kinds = [kind for kind, _ in schema]
    readers = [(index, reader) for index, (_, reader) in enumerate(schema) if reader]

    def read(value: Any) -> Any:
        if len(value) != len(kinds):
            raise WireError("fields", f"{cls.__name__} has {len(kinds)} fields, not {len(value)}")
        if [*map(type, value)] != kinds:
            value = _widened(cls, value, kinds)
        if readers:
            value = [*value]
            for index, reader in readers:
                value[index] = reader(value[index])
        return cls(*value)

    return read


def _widened(cls: type, value: Any, kinds: list[type]) -> list[Any]:
    """A whole number may stand where a float is due, as in Python; any other type is refused."""
    widened = [float(part) if kind is float and type(part) is int else part for part, kind in zip(value, kinds, strict=True)]
    if [*map(type, widened)] != kinds:
        raise WireError("value", f"a field of {cls.__name__} has the wrong type")
    return widened


def _field(annotation: Any) -> tuple[type, Reader | None]:
    """The type that msgpack must give for an annotation, and what is left to do; TypeError at import for an unknown one."""
    if is_dataclass(annotation) and isinstance(annotation, type):
        return tuple, _struct(annotation)
    if get_origin(annotation) is tuple and get_args(annotation)[1:] == (...,):
        return tuple, _repeated(*_field(get_args(annotation)[0]))
    if annotation is float:
        return float, _finite
    if annotation in (int, bool, str, bytes):
        return annotation, None
    raise TypeError(f"no wire type for {annotation!r}")


def _flattener(cls: type) -> Callable[[Any], Iterable[Any]]:
    names = [field.name for field in fields(cls)]
    if len(names) > 1:
        return attrgetter(*names)  # a tuple, made in C
    return lambda value: tuple(getattr(value, name) for name in names)


def _structs(cls: type) -> Iterable[type]:
    """`cls` and every dataclass inside it."""
    yield cls
    for hint in _hints(cls).values():
        inner = (get_args(hint) or (hint,))[0]
        if is_dataclass(inner) and isinstance(inner, type):
            yield from _structs(inner)


def _flatten(value: Any) -> Iterable[Any]:
    """What msgpack calls for what it doesn't know: our dataclasses, as arrays."""
    flattener = _FLATTENERS.get(type(value))
    if flattener is None:
        raise TypeError(f"{type(value).__name__} can't be sent")
    return flattener(value)


_NUMBERS = {cls: number for number, cls in TABLE.items()}
_READERS = {number: _struct(cls) for number, cls in TABLE.items()}
_FLATTENERS = {cls: _flattener(cls) for message in TABLE.values() for cls in _structs(message)}
_envelope = _struct(Envelope)
_flat_envelope = _flattener(Envelope)
