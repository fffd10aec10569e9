"""A stranger's bytes, and a member's: refused and counted, never an exception, and no memory taken for them."""

import asyncio
import random
import socket
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgpack
import pytest
import zmq

from p2p.config import TEST
from p2p.errors import WireError
from p2p.net import wire
from p2p.net.keys import CurvePair, client_pair, server_pair
from p2p.net.messages import Ask, Envelope, Gossip, Message, Nack, News, Pulse, Record, Settled, Shard
from p2p.net.transport import Route
from p2p.net.zeromq import ZmqTransport

SECRET = bytes(range(32))
FRAMES = 10_000
ENVELOPE = Envelope(b"s" * 16, "ab" * 16, 1, 1)
RECORD = Record(b"k" * 32, "tcp://10.0.0.1:7000", "tcp://10.0.0.1:7001", 1, 1, "", False, b"c" * 16, b"s" * 64)
SHARD = Shard(0, 1, 0, "none", "float32", 2, wire.checksum(b"12345678"))
MESSAGES: tuple[Message, ...] = (
    Nack(1),
    Settled((1, 2, 3)),
    Gossip(News((RECORD,) * 3)),
    Ask(1, 0.5, Pulse(1, 1.0), (), (), SHARD),
)


def corpus(rng: random.Random) -> Iterator[bytes]:
    """Random bytes, random msgpack, and true headers with bytes flipped, cut out and doubled."""
    headers = [wire.encode(ENVELOPE, message) for message in MESSAGES]
    while True:
        yield rng.randbytes(rng.randrange(200))
        yield b"\x97\x01" + rng.randbytes(rng.randrange(200))
        yield msgpack.packb([1, rng.choice([1, 11, 15, 30, 41]), b"s" * 16, "ab" * 16, 1, 1, junk(rng, 4)])
        header = rng.choice(headers)
        at, to = sorted(rng.choices(range(len(header)), k=2))
        yield rng.choice([header[:at] + header[to:], header[:to] + header[at:], flipped(header, rng)])


def flipped(header: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(header)
    for _ in range(rng.randint(1, 8)):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def junk(rng: random.Random, depth: int) -> object:
    if depth and rng.random() < 0.7:
        return [junk(rng, depth - 1) for _ in range(rng.randrange(10))]
    return rng.choice([None, True, 1, -1, 2**63, 1.5, float("nan"), "x", b"x", {"a": 1}, msgpack.ExtType(5, b"x")])


class Reader:
    """Reads as an agent does: what is off is counted by its reason."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.enough = asyncio.Event()

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        self.counts[verdict(header, None if payload is None else len(payload))] += 1
        if self.counts.total() >= FRAMES:
            self.enough.set()

    def lost(self, route: Route, reason: str) -> None:
        self.counts[f"lost: {reason}"] += 1


def verdict(header: bytes, payload: int | None) -> str:
    try:
        wire.decode(header, payload)
    except WireError as error:
        return error.reason
    return "read"


def attack(on_node: Callable[[ZmqTransport, Reader], None]) -> Reader:
    """Runs an attack, in a thread, on a node; then the node must still hear a friend."""
    reader = Reader()

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reader.counts.update([str(context)]))
        victim = ZmqTransport("tcp://127.0.0.1:0", secret=SECRET, config=TEST.net)
        friend = ZmqTransport("tcp://127.0.0.1:0", secret=SECRET, config=TEST.net)
        try:
            await victim.start(reader)
            await friend.start(reader)
            await asyncio.to_thread(on_node, victim, reader)
            friend.send(friend.dial(victim.control), wire.encode(ENVELOPE, Nack(1)))
            heard = reader.counts["read"]
            while reader.counts["read"] == heard:
                await asyncio.sleep(0.005)
        finally:
            await friend.close()
            await victim.close()

    asyncio.run(asyncio.wait_for(main(), 60))
    return reader


def member(context: "zmq.Context[zmq.Socket[bytes]]", address: str, client: CurvePair | None = None) -> "zmq.Socket[bytes]":
    """A socket with the swarm's keys, or with a stranger's."""
    dealer = context.socket(zmq.DEALER)
    keys = client or client_pair(SECRET)
    dealer.setsockopt(zmq.LINGER, 0)
    dealer.setsockopt(zmq.SNDTIMEO, 10_000)
    dealer.setsockopt(zmq.CURVE_SERVERKEY, server_pair(SECRET).public)
    dealer.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
    dealer.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
    dealer.connect(address)
    return dealer


def test_ten_thousand_malformed_headers_are_counted() -> None:
    frames = corpus(random.Random(5))

    def send(victim: ZmqTransport, reader: Reader) -> None:
        with zmq.Context() as context, member(context, victim.control) as dealer:
            for _ in range(FRAMES):
                dealer.send(next(frames))
            while not reader.enough.is_set():
                dealer.poll(10)

    counts = attack(send).counts
    assert set(counts) == {"read", "msgpack", "protocol", "type", "fields", "value", "payload"}
    assert counts.total() == FRAMES + 1
    assert counts["read"] < FRAMES / 10


def test_a_message_of_many_frames_is_dropped() -> None:
    def send(victim: ZmqTransport, reader: Reader) -> None:
        with zmq.Context() as context, member(context, victim.control) as dealer:
            dealer.send_multipart([b"x"] * 3)
            dealer.send_multipart([b"x"] * 1000)
            dealer.send(b"the last")
            while not reader.counts["msgpack"]:
                dealer.poll(10)
            assert victim.malformed == 2

    assert attack(send).counts == {"msgpack": 1, "read": 1}


def test_a_stranger_who_knows_the_server_key_is_not_admitted() -> None:
    """Every member holds the server's public key; without the derived client key it opens nothing."""

    def send(victim: ZmqTransport, reader: Reader) -> None:
        with zmq.Context() as context, member(context, victim.control, CurvePair(*zmq.curve_keypair())) as dealer:
            dealer.send(wire.encode(ENVELOPE, Nack(1)))
            while not victim.refused:
                dealer.poll(10)

    assert attack(send).counts == {"read": 1}


def test_raw_connections_starve_nobody() -> None:
    def connect(victim: ZmqTransport, reader: Reader) -> None:
        host, _, port = victim.control.removeprefix("tcp://").partition(":")
        rng = random.Random(5)
        for i in range(200):
            with socket.create_connection((host, int(port)), timeout=5) as stranger:
                stranger.sendall([b"", rng.randbytes(64), b"\xff" + bytes(8) + b"\x7f\x03", b"GET / HTTP/1.1\r\n\r\n"][i % 4])

    assert attack(connect).counts == {"read": 1}


@pytest.mark.parametrize(
    "header",
    [
        b"\x97\x01" + b"\xdd\xff\xff\xff\xff" * 40_000,  # arrays in arrays, each said to hold 2^32
        b"\x97\x01" + b"\xdc\x0f\xff" * 80_000,  # ... 4095, as many as are allowed
        b"\x97\x01" + b"\xdf\xff\xff\xff\xff" * 40_000,
        b"\x97\x01\xc6\xff\xff\xff\xff",  # bytes said to be 4 GiB
        b"\x97\x01\xdb\xff\xff\xff\xff",
        b"\x92" + b"\xdd\x00\x03\xff\xff" * 50_000,
        b"\x91" * wire.HEADER_BYTES,
        b"\x97\x01" + b"\x91\x90" * 120_000,
    ],
    ids=["arrays", "nested", "maps", "bytes", "str", "foreign", "deep", "wide"],
)
def test_claimed_lengths_take_no_memory(header: bytes) -> None:
    tracemalloc.start()
    try:
        assert verdict(header, None) == "msgpack"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024 * 1024


def test_a_payload_of_another_length_is_never_looked_at() -> None:
    ask = wire.encode(ENVELOPE, replace(MESSAGES[-1], shard=replace(SHARD, elements=2**62)))
    assert verdict(ask, wire.PAYLOAD_BYTES + 1) == "payload"
    assert verdict(ask, None) == "payload"
