"""hivemind's averager, all peers in one group.

python hivemind_averager.py MEGABYTES RANK SIZE FOLDER
"""

from __future__ import annotations

import multiprocessing

import torch
from serving import fetch, post, serve, timed
from vectors import Place


def main() -> None:
    multiprocessing.set_start_method("fork", force=True)
    import hivemind  # starts processes of its own, by the method that is set now

    place = Place()
    peers = fetch(place.folder, "address").split() if place.rank else []
    dht = hivemind.DHT(initial_peers=peers, host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True)
    if not place.rank:
        post(place.folder, "address", "\n".join(str(address) for address in dht.get_visible_maddrs()))
    averager = hivemind.DecentralizedAverager(
        averaged_tensors=[torch.zeros(place.elements)],
        dht=dht,
        prefix="bench",
        target_group_size=place.size,
        min_group_size=place.size,
        start=True,
    )

    def fill() -> None:
        with averager.get_tensors() as (x,):
            place.fill(x)

    def error() -> float:
        with averager.get_tensors() as (x,):
            return place.error(x, place.mean())

    def exchange() -> None:
        if averager.step(timeout=60) is None:
            raise RuntimeError("no group was found")

    serve({"fill": fill, "error": error, "exchange": lambda: timed(exchange)})
    averager.shutdown()
    dht.shutdown()


main()
