"""`selsync`: a node asks for swaps only where its gradients change; `layerwise`: each block once a period, spread over it.

Tyagi and Swany, "SelSync" (2023): e <- (1 - memory) e + memory ||g||^2; a step matters if |e - e_before| / e_before reaches
`delta`. Over gossip the rule is per pair: a swap takes place where either end's step matters, since either may ask. Long
silence costs accuracy where data are unlike, so it is bounded. Layer-wise after Tang et al., "DreamDDP" (2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from optim.algorithm import Step, Vector
from optim.asynchronous import Async
from optim.registry import register
from topology import SpecError

TINY = 1e-12


@register("selsync")
@dataclass(frozen=True)
class SelSync(Async):
    """After `silence` steps that don't matter, the next one does. `delta=0`: all matter."""

    delta: float = 0.3
    silence: int = 5
    memory: float = 0.16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta < 0 or self.silence < 0 or not 0 < self.memory <= 1:
            raise SpecError(
                f"{self.name}: delta {self.delta}, silence {self.silence}, memory {self.memory}: not negative, memory up to 1"
            )

    def vectors(self) -> tuple[Vector, ...]:
        """Beside momentum's: e, and the silent steps so far."""
        return *super().vectors(), Vector("energy", scalar=True), Vector("silent", scalar=True)

    def before(self, s: Step) -> None:
        """Whether this step matters, by the gradients as they came."""
        energy, silent = s["energy"][0], s["silent"][0]
        before, squared = float(energy), sum(float(norm) ** 2 for norm in torch._foreach_norm(s.g))
        now = (1 - self.memory) * before + self.memory * squared if before else squared
        s.silent = bool(before) and abs(now - before) / max(before, TINY) < self.delta and float(silent) < self.silence
        energy.fill_(now)
        silent.fill_(float(silent) + 1 if s.silent else 0)
        super().before(s)


@register("layerwise")
@dataclass(frozen=True)
class Layerwise(Async):
    """Where `async:period` swaps the whole model every `period` steps, this swaps a part of it in each of them.

    A link carries as many bytes, but evenly: at first blocks follow each other through the period; once the links have shown
    their rates, each has its step, in which it leaves as soon as trainer and agent have met (`optim.schedule`).
    """

    period: int = 5
    spread: ClassVar[bool] = True
