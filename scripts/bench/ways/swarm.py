"""A node of ours: `gossip` (one synchronous round) or `async` (as many own swaps of each block), plain or encrypted.

python swarm.py ALGORITHM plain|encrypted MEGABYTES RANK SIZE FOLDER
"""

from __future__ import annotations

import hashlib
import sys
import time

import torch
from serving import PATIENCE, fetch, post, serve, timed
from torch import nn
from vectors import Place

import p2p

SWAPS = 4
"""Own swaps of each block that are timed together, so that the way there doesn't count."""


def main() -> None:
    place = Place()
    model = nn.ParameterList(nn.Parameter(torch.zeros(part)) for part in sizes(place.elements))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # without gradients its step changes nothing
    secret = hashlib.blake2b(place.folder.name.encode(), digest_size=32).digest() if sys.argv[2] == "encrypted" else None
    peers = fetch(place.folder, "address") if place.rank else ()
    with p2p.join(
        model,
        optimizer,
        algorithm=sys.argv[1],
        secret=secret,
        peers=peers,
        listen="tcp://127.0.0.1:0",
        wait_for=place.size,
        join_timeout=PATIENCE,
    ) as node:
        if not place.rank:
            post(place.folder, "address", node.address)
        agent = node._agent
        assert agent.exchange is not None

        def fill() -> None:
            with torch.no_grad():
                for p, values in zip(model, place.vector(place.rank).split(sizes(place.elements)), strict=True):
                    p.copy_(values)

        def error() -> float:
            return place.error(torch.cat([p.detach() for p in model]), place.mean())

        def swap() -> None:
            goal, deadline = agent.exchange.mean_round + SWAPS, time.monotonic() + PATIENCE
            while agent.exchange.mean_round < goal:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not {SWAPS} own swaps of each block within {PATIENCE:g} s")
                optimizer.step()
                time.sleep(0)  # a step that does nothing else would keep the interpreter from the agent

        def exchange() -> dict[str, float]:
            before = agent.post.sent
            answer = timed(optimizer.step) if agent.waits else timed(swap, SWAPS)
            return {**answer, "sent": (agent.post.sent - before) / answer["count"]}

        serve({"fill": fill, "error": error, "exchange": exchange})


def sizes(elements: int) -> list[int]:
    """The model's tensors: of a million elements, and the rest."""
    whole, rest = divmod(elements, 1_000_000)
    return [1_000_000] * whole + [rest] * bool(rest)


main()
