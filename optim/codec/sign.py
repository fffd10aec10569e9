"""Signs with a scale: a thirty-second of the bytes of float32 and a little more.

Each group of 1024 elements becomes its signs times its mean magnitude (Karimireddy et al. 2019, "Error feedback fixes
SignSGD"). A piece is its scales (float32), then a bit an element, then zeros up to a multiple of 4 bytes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from optim.codec.base import Form, scratch
from optim.codec.groups import LARGEST, count, rows

GROUP = 1024


class Sign:
    """Of a group of d elements, what is lost is |x|_2^2 - |x|_1^2 / d."""

    name = "sign"
    form = Form.CHANGES

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        return 4 * count(elements, GROUP) + 4 * -(-elements // 32)

    def encode(self, x: Tensor, data: Tensor) -> None:
        scales, bits = _split(data, x.numel())
        for scale, group in rows(GROUP, scales, x):
            mean = torch.abs(group, out=scratch(group)).div_(group.shape[1]).sum(1, keepdim=True)
            scale.copy_(mean.clamp_(max=LARGEST))
        packed = np.packbits(np.signbit(x.numpy()))
        bits[: packed.size] = torch.from_numpy(packed)
        bits[packed.size :] = 0

    def decode(self, data: Tensor, out: Tensor) -> Tensor:
        scales, bits = _split(data, out.numel())
        negative = torch.from_numpy(np.unpackbits(bits.numpy(), count=out.numel()))
        for scale, group, sign in rows(GROUP, scales, out, negative):
            group.copy_(sign).mul_(-2).add_(1).mul_(scale)
        return out


def _split(data: Tensor, elements: int) -> tuple[Tensor, Tensor]:
    at = 4 * count(elements, GROUP)
    return data[:at].view(torch.float32), data[at:]
