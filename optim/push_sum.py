"""`push-sum`: stochastic gradient push. Each node splits itself over its receivers; nobody needs to agree on weights.

Kempe et al. (2003); Assran et al., "Stochastic Gradient Push" (2019): x <- P (x - lr g), w <- P w, with columns of P that sum
to 1; the model is z = x / w, and g is taken there. What is sent is counted until it has arrived, so no mass is lost on
the way; a leaver hands its own over, and a death takes along what the dead one held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from optim.algorithm import Algorithm
from optim.registry import register


@register("push-sum")
@dataclass(frozen=True)
class PushSum(Algorithm):
    """`overlap`: no step waits; what has arrived by then is added (OSGP), and an update counts as much as its node weighs.

    Else `deadline=off` waits for all, however late.
    """

    exchange: ClassVar[Literal["swap", "push", "mass"]] = "mass"
    needs: ClassVar[frozenset[str]] = frozenset({"mean_preserving"})

    overlap: bool = False
    deadline: Literal["adaptive", "off"] = "adaptive"
