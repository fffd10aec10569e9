"""decent-dp's wrapper on the one-peer exponential graph.

python decent.py MEGABYTES RANK SIZE FOLDER

Two backward passes make its buckets; then its own hook of each bucket is called as a backward pass would, without the pass,
which would cost gradients. It sends in one pass and mixes in the next, so some in a row are timed together.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from decent_dp.ddp import DecentralizedDataParallel
from serving import serve, timed
from torch import Tensor, nn
from vectors import Place

PASSES = 4
PIECE = 1_000_000


class Flat(nn.Module):
    """A vector in pieces; the loss leaves it alone."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.pieces = nn.ParameterList(nn.Parameter(piece.clone()) for piece in torch.zeros(elements).split(PIECE))

    def forward(self) -> Tensor:
        return torch.stack([piece[0] * 0 for piece in self.pieces]).sum()


def main() -> None:
    place = Place()
    os.environ["LOCAL_WORLD_SIZE"] = "1"
    dist.init_process_group("gloo", init_method=f"file://{place.folder}/store", rank=place.rank, world_size=place.size)
    model = Flat(place.elements)
    wrapped = DecentralizedDataParallel(
        model, lambda named: torch.optim.SGD([p for _, p in named], lr=0.1), topology="one-peer-exp"
    )
    for _ in range(2):
        wrapped().backward()

    def once() -> None:
        wrapped._step += 1
        for bucket in range(len(wrapped._param_buckets)):
            wrapped._ddp_fn(None, bucket)

    def fill() -> None:
        """What is under way is of the old values: it is dropped."""
        for operation in wrapped._comm_ops:
            if operation is not None:
                operation.wait()
        wrapped._comm_ops = [None for _ in wrapped._comm_ops]
        with torch.no_grad():
            for piece, values in zip(model.pieces, place.vector(place.rank).split(PIECE), strict=True):
                piece.copy_(values)

    def exchange() -> None:
        for _ in range(PASSES):
            once()

    def error() -> float:
        return place.error(torch.cat([piece.detach() for piece in model.pieces]), place.mean())

    serve({"fill": fill, "error": error, "exchange": lambda: timed(exchange, PASSES)})
    dist.destroy_process_group()


main()
