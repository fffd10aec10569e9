"""torch.distributed with gloo: `all-reduce` to the mean, or `send-receive` and mix on the one-peer exponential graph.

python gloo.py all-reduce|send-receive MEGABYTES RANK SIZE FOLDER
"""

from __future__ import annotations

import sys
from itertools import count

import torch
import torch.distributed as dist
from serving import serve, timed
from vectors import Place


def main() -> None:
    place = Place()
    dist.init_process_group("gloo", init_method=f"file://{place.folder}/store", rank=place.rank, world_size=place.size)
    x, room = torch.zeros(place.elements), torch.zeros(place.elements)
    rounds = count()

    def all_reduce() -> None:
        dist.all_reduce(x)
        x.div_(place.size)

    def send_receive() -> None:
        to, origin = place.partners(next(rounds))
        for work in [dist.irecv(room, origin), dist.isend(x, to)]:
            work.wait()
        x.lerp_(room, 0.5)

    way = all_reduce if sys.argv[1] == "all-reduce" else send_receive
    serve(
        {
            "fill": lambda: place.fill(x),
            "error": lambda: place.error(x, place.mean()),
            "exchange": lambda: timed(way),
        }
    )
    dist.destroy_process_group()


main()
