"""The bytes alone, without mixing: each sends its vector to one, and receives another one's, over `tcp` or `zeromq`.

python raw.py tcp|zeromq plain|encrypted MEGABYTES RANK SIZE FOLDER
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from itertools import count
from typing import Protocol

import torch
import zmq
from serving import fetch, post, serve, timed
from vectors import Place

MESSAGE = 4 << 20
"""Bytes of one ZeroMQ message: what moves fastest."""


class Wire(Protocol):
    """Connections of one process to all the others."""

    def send(self, to: int, data: memoryview) -> None: ...

    def receive(self, origin: int, room: memoryview) -> None: ...


class Tcp:
    """A socket to each, which sends its rank first."""

    def __init__(self, place: Place) -> None:
        server = socket.create_server(("127.0.0.1", 0), backlog=place.size)
        post(place.folder, f"port-{place.rank}", str(server.getsockname()[1]))
        others = [rank for rank in range(place.size) if rank != place.rank]
        self._out = {}
        for rank in others:
            self._out[rank] = socket.create_connection(("127.0.0.1", int(fetch(place.folder, f"port-{rank}"))))
            self._out[rank].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._out[rank].sendall(bytes([place.rank]))
        arrivals = [server.accept()[0] for _ in others]
        self._in = {connection.recv(1)[0]: connection for connection in arrivals}

    def send(self, to: int, data: memoryview) -> None:
        self._out[to].sendall(data)

    def receive(self, origin: int, room: memoryview) -> None:
        done = 0
        while done < len(room):
            done += self._in[origin].recv_into(room[done:])


class ZeroMq:
    """A PUSH socket to each, without copies on the way out; what arrives is copied from its frame once."""

    def __init__(self, place: Place, encrypted: bool) -> None:
        self._context = zmq.Context()
        keys = zmq.curve_keypair()
        self._in, self._out = {}, {}
        for rank in (r for r in range(place.size) if r != place.rank):
            pull = self._in[rank] = self._context.socket(zmq.PULL)
            if encrypted:
                pull.curve_server, pull.curve_secretkey = True, keys[1]
            port = pull.bind_to_random_port("tcp://127.0.0.1")
            post(place.folder, f"port-{place.rank}-{rank}", f"{port} {keys[0].hex()}")
        for rank in self._in:
            port, key = fetch(place.folder, f"port-{rank}-{place.rank}").split()
            push = self._out[rank] = self._context.socket(zmq.PUSH)
            if encrypted:
                push.curve_serverkey = bytes.fromhex(key)
                push.curve_publickey, push.curve_secretkey = zmq.curve_keypair()
            push.connect(f"tcp://127.0.0.1:{port}")

    def send(self, to: int, data: memoryview) -> None:
        for at in range(0, len(data), MESSAGE):
            self._out[to].send(data[at : at + MESSAGE], copy=False)

    def receive(self, origin: int, room: memoryview) -> None:
        done = 0
        while done < len(room):
            frame = self._in[origin].recv(copy=False)
            room[done : done + len(frame)] = frame.buffer
            done += len(frame)


def main() -> None:
    place = Place()
    wire: Wire = Tcp(place) if sys.argv[1] == "tcp" else ZeroMq(place, sys.argv[2] == "encrypted")
    x, y = torch.zeros(place.elements), torch.zeros(place.elements)
    data, room = (memoryview(t.numpy()).cast("B") for t in (x, y))
    rounds, origin = count(), 0

    def exchange() -> None:
        nonlocal origin
        to, origin = place.partners(next(rounds))
        both(lambda: wire.send(to, data), lambda: wire.receive(origin, room))

    serve(
        {
            "fill": lambda: place.fill(x),
            "error": lambda: place.error(y, place.vector(origin)),
            "exchange": lambda: {**timed(exchange), "sent": len(data)},
        }
    )


def both(one: Callable[[], None], other: Callable[[], None]) -> None:
    """At once."""
    thread = threading.Thread(target=one)
    thread.start()
    other()
    thread.join()


main()
