"""Two Adams for swarms, as torch optimizers. Both share moments by kind like torch's own.

A node's own squared gradients are far larger than the square of the swarm's mean gradient, so Adam's steps come out too
small where data are unlike. `SwarmAdam` takes its second moment from the first one, which is shared; `AccumAdam`
(Wang et al., "DecentDP", 2025) takes both from gradients accumulated over several steps, while it updates in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from optim.kinds import MOMENTS, TABLE, Slot, lay_out
from topology import SpecError


class _Adam(Optimizer):
    """What both share: arguments, weight decay (decoupled, as in AdamW), and the walk over parameters."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **more: object,
    ) -> None:
        if not (lr >= 0 and eps >= 0 and weight_decay >= 0 and all(0 <= beta < 1 for beta in betas)):
            raise SpecError(f"lr {lr}, eps {eps}, weight_decay {weight_decay}, betas {betas}: not negative, betas below 1")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, **more})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update; `closure` computes the loss anew and returns it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    lay_out(self, p)
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    self._update(p, p.grad, self.state[p], group)
        return loss

    def _update(self, p: Tensor, g: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        raise NotImplementedError


class SwarmAdam(_Adam):
    """m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) m^^2; x <- x - lr m^ / (sqrt(v^) + eps), where ^ corrects the bias.

    With m shared, m^ is nearly the swarm's mean gradient, and so is what v sees.
    """

    def _update(self, p: Tensor, g: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        (first, second), m, v = group["betas"], state["exp_avg"], state["exp_avg_sq"]
        t = float(state["step"].add_(1))
        m.lerp_(g, 1 - first)
        mean = m / (1 - first**t)
        v.mul_(second).addcmul_(mean, mean, value=1 - second)
        p.addcdiv_(mean, (v / (1 - second**t)).sqrt_().add_(group["eps"]), value=-group["lr"])


class AccumAdam(_Adam):
    """Moments move once in `every` steps, by the mean gradient of those; each step uses them with its own gradient added.

    As if the batch were `every` times larger for the statistics, while every step updates the parameters.
    """

    def __init__(self, params: Iterable[Any], *args: Any, every: int = 4, **more: Any) -> None:
        if every < 1:
            raise SpecError(f"every is {every}: at least 1 step is expected")
        super().__init__(params, *args, every=every, **more)

    def _update(self, p: Tensor, g: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        (first, second), m, v, total = group["betas"], state["exp_avg"], state["exp_avg_sq"], state["accumulated"]
        k = float(state["step"]) + 1  # of the window
        total.add_(g, alpha=1 / group["every"])
        now, square = m.lerp(g, 1 - first), (v * second).addcmul_(g, g, value=1 - second)
        p.addcdiv_(now, (square / (1 - second**k)).sqrt_().add_(group["eps"]), value=-group["lr"] / (1 - first**k))
        if int(state["window"].add_(1)) >= group["every"]:
            m.lerp_(total, 1 - first)
            v.mul_(second).addcmul_(total, total, value=1 - second)
            state["step"].add_(1)
            state["window"].zero_()
            total.zero_()


TABLE[SwarmAdam] = MOMENTS
TABLE[AccumAdam] = (*MOMENTS, Slot("accumulated", None), Slot("window", None, scalar=True))
"""What a window has gathered so far is the node's own."""
