"""torchft's manager, each process a replica group of its own with its own TCPStore; rank 0 keeps the lighthouse.

python torchft_manager.py MEGABYTES RANK SIZE FOLDER

One exchange is what its optimizer wrapper does in one step: a quorum, the fault tolerant all-reduce to the mean, the commit.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta

import torch
from serving import PATIENCE, fetch, post, serve, timed
from torch.distributed import TCPStore
from torchft.coordination import LighthouseServer
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo
from vectors import Place


def lighthouse(place: Place, end: ExitStack) -> str:
    """Its address; rank 0 runs it."""
    if place.rank:
        return fetch(place.folder, "lighthouse")
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=place.size, join_timeout_ms=1000)
    end.callback(server.shutdown)
    address = server.address()
    post(place.folder, "lighthouse", address)
    return address


def main() -> None:
    place = Place()
    x = torch.zeros(place.elements)
    patience = timedelta(seconds=PATIENCE)
    with ExitStack() as end:
        address = lighthouse(place, end)
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        manager = Manager(
            pg=ProcessGroupGloo(timeout=patience),
            load_state_dict=lambda state: None,
            state_dict=lambda: {},
            min_replica_size=place.size,
            rank=0,
            world_size=1,
            store_addr="127.0.0.1",
            store_port=store.port,
            lighthouse_addr=address,
            replica_id=f"replica_{place.rank}",
            hostname="127.0.0.1",
            init_sync=False,
            quorum_timeout=patience,
        )
        end.callback(manager.shutdown)

        def exchange() -> None:
            manager.start_quorum()
            manager.allreduce(x).wait()
            if not manager.should_commit():
                raise RuntimeError("not committed: a replica was missing, or failed")

        serve(
            {
                "fill": lambda: place.fill(x),
                "error": lambda: place.error(x, place.mean()),
                "exchange": lambda: timed(exchange),
            }
        )


main()
