"""How fast codecs encode, as a ratio to a copy of the same tensor in the same run.

    python scripts/bench/codecs.py              # 25 M parameters (100 MB), one thread, pieces of 1 MiB
    python scripts/bench/codecs.py --kib 256    # in blocks as they travel

Rounds of a copy and of every codec alternate; each figure is the median over rounds of the round's own ratio
of CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from optim.codec import Codec, Form, Projection, make

NAMES = ("float16", "bfloat16", "int8", "int4", "sign", "top-k:100", "random-k:100", "low-rank:1", "low-rank:2")


def timed(work: Callable[[], None]) -> float:
    began = time.thread_time()  # what else runs here takes its time elsewhere
    work()
    return time.thread_time() - began


def encoder(codec: Codec, x: Tensor, block: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """What encodes all pieces of `x` into one reused buffer, and what decodes them again."""
    size = codec.nbytes(block, x.dtype)
    data = torch.zeros(x.numel() // block * size, dtype=torch.uint8)
    pieces = list(zip(torch.split(x, block), torch.split(data, size), strict=True))
    room = torch.zeros(block)
    if isinstance(codec, Projection):
        for seed, (_, piece) in enumerate(pieces):
            codec.begin(piece, block, seed, None)

    def encode() -> None:
        for values, piece in pieces:
            codec.encode(values, piece)

    def decode() -> None:
        for _, piece in pieces:
            codec.decode(piece, room)

    return encode, decode


def copier(x: Tensor, block: int) -> Callable[[], None]:
    out = torch.zeros_like(x)
    pieces = list(zip(torch.split(x, block), torch.split(out, block), strict=True))

    def copy() -> None:
        for values, piece in pieces:
            piece.copy_(values)

    return copy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--kib", type=int, default=1024, help="of a piece")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    torch.set_num_threads(1)
    block = given.kib * 256
    x = torch.randn(given.mb * 250_000 // block * block, generator=torch.Generator().manual_seed(1))
    copy = copier(x, block)
    print(f"{'codec':14} {'form':8} {'bytes':>7} {'encode':>9} {'decode':>9}   (rates over that of a copy)")
    copy()
    for name in NAMES:
        codec = make(name)
        encode, decode = encoder(codec, x, block)
        encode(), decode()
        ratios = []
        for _ in range(given.rounds if codec.form is not Form.CHANGES else 3):
            base = timed(copy)
            ratios.append((base / timed(encode), base / timed(decode)))
        encoded, decoded = (statistics.median(column) for column in zip(*ratios, strict=True))
        share = codec.nbytes(block, x.dtype) / (4 * block)
        print(f"{name:14} {codec.form.value:8} {share:6.2%} {encoded:8.2f}x {decoded:8.2f}x", flush=True)


if __name__ == "__main__":
    main()
