"""Low rank: a piece seen as a near-square matrix, and what a few directions show of it.

PowerGossip (Vogels et al. 2020, "Practical low-rank communication compression in decentralized deep learning"): with an
orthonormal basis V that both ends know, M V is exact averaging of the part M V V^T; the answer shows the difference in
that basis, and its own directions are the basis of the next exchange, from the other side: power iteration on the
difference of two models. So that nobody has to remember what the other holds, the basis travels in the head.

A piece is a head of the side (int32) and `rank` basis vectors, then `rank` vectors of coefficients, then the elements that
are over (all float32). Vectors have the length of the matrix's longer side, zeros at their end where the side is shorter.
"""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

import torch
from torch import Tensor

from optim.codec.base import Projection
from optim.codec.groups import LARGEST

RIGHT, LEFT = 0, 1
"""Which side the basis multiplies from."""


class _Piece(NamedTuple):
    side: Tensor  # (1,) int32
    basis: Tensor  # (rank, longer)
    coefficients: Tensor  # (rank, longer)
    over: Tensor


class LowRank(Projection):
    """Exact on `rank` directions. Of a random difference that is rank / sqrt(n); of a typical one, most."""

    warm = True

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self.name = f"low-rank:{rank}"

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        rows, columns = _shape(elements)
        return 4 + 4 * (2 * self._rank * columns + elements - rows * columns)

    def head(self, elements: int) -> int:
        return 4 + 4 * self._rank * _shape(elements)[1]

    def magnify(self, elements: int) -> float:
        return _shape(elements)[0] / min(self._rank, _shape(elements)[0])

    def begin(self, data: Tensor, elements: int, seed: int, last: Tensor | None) -> None:
        """The directions that the last answer showed; random ones at first, or where it showed too few."""
        before = self._piece(last, elements) if last is not None else None
        side = 1 - int(before.side) if before is not None and int(before.side) in (RIGHT, LEFT) else RIGHT
        length = _shape(elements)[1 - side]
        drawn = torch.randn(self._rank, length, generator=torch.Generator().manual_seed(seed))
        if before is not None:
            shown = before.coefficients[:, :length]
            norms = shown.norm(dim=1, keepdim=True)
            drawn = torch.where(norms > 1e-6 * norms.max().clamp(min=1e-30), shown / norms, drawn)
        piece = self._piece(data, elements)
        piece.side.fill_(side)
        piece.basis.zero_()
        kept = min(self._rank, length)
        piece.basis[:kept, :length].copy_(torch.linalg.qr(drawn.T).Q.T[:kept])

    def encode(self, x: Tensor, data: Tensor) -> None:
        piece, matrix = self._piece(data, x.numel()), _matrix(x)
        basis, across = self._oriented(piece, matrix)
        piece.coefficients.zero_()
        piece.coefficients[:, : across.shape[0]].copy_((across @ basis).T.clamp_(-LARGEST, LARGEST))
        piece.over.copy_(x[matrix.numel() :].clamp(-LARGEST, LARGEST))

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        piece, matrix = self._piece(data, out.numel()), _matrix(out)
        basis, across = self._oriented(piece, matrix)
        shown = piece.coefficients[:, : across.shape[0]].T.to(out.dtype)
        across.add_((shown - across @ basis) @ basis.T)
        out[matrix.numel() :].copy_(piece.over)
        return out

    def _oriented(self, piece: _Piece, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """The basis as columns, and the matrix that it multiplies."""
        across = matrix.T if int(piece.side) == LEFT else matrix
        return piece.basis[:, : across.shape[1]].T.to(matrix.dtype), across

    def _piece(self, data: Tensor, elements: int) -> _Piece:
        columns = _shape(elements)[1]
        floats = data[4:].view(torch.float32)
        size = self._rank * columns
        return _Piece(
            data[:4].view(torch.int32),
            floats[:size].view(self._rank, columns),
            floats[size : 2 * size].view(self._rank, columns),
            floats[2 * size :],
        )


def _shape(elements: int) -> tuple[int, int]:
    """Rows and columns, at least as many columns as rows; fewer elements than a row are over."""
    rows = isqrt(elements)
    return rows, elements // max(rows, 1)


def _matrix(x: Tensor) -> Tensor:
    rows, columns = _shape(x.numel())
    return x[: rows * columns].view(rows, columns)
