"""How long a simulated step computes: constant, varying, slow for some, paused now and then, or read from a trace."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from p2p.errors import ConfigError


class Compute(Protocol):
    """Seconds of virtual time that `node` computes for its step number `step` (from 0)."""

    def seconds(self, node: int, step: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Pause:
    """The trainer of `node` (not its agent) takes so many seconds more at `step`: a checkpoint, a data loader that hangs."""

    node: int
    step: int
    seconds: float


@dataclass
class Paced:
    """Each step takes `mean` seconds, give or take.

    Args:
        mean: Seconds of a normal node's step.
        variation: Coefficient of variation; step times are gamma distributed. Where it is not 0, nodes also start out of
            phase, anywhere within one step.
        slow: Factors of persistently slow nodes.
        pauses: Single steps that take longer.
        seed: Of each node's own random numbers, together with its number.
    """

    mean: float = 1.0
    variation: float = 0.0
    slow: Mapping[int, float] = field(default_factory=dict)
    pauses: Sequence[Pause] = ()
    seed: int = 0
    _rngs: dict[int, random.Random] = field(default_factory=dict, init=False, repr=False)

    def seconds(self, node: int, step: int) -> float:
        base = self.mean * self.slow.get(node, 1.0) * self._varied(node, step)
        return base + sum(pause.seconds for pause in self.pauses if (pause.node, pause.step) == (node, step))

    def _varied(self, node: int, step: int) -> float:
        if not self.variation:
            return 1.0
        if node not in self._rngs:
            self._rngs[node] = random.Random(f"{self.seed}/compute/{node}")
        rng, spread = self._rngs[node], self.variation**2
        return rng.gammavariate(1 / spread, spread) + (rng.random() if step == 0 else 0.0)


class Trace:
    """Step times from a text file: one line per node, seconds separated by blanks; a line that ends begins again."""

    def __init__(self, path: Path) -> None:
        self._lines = [_numbers(path, number, line) for number, line in enumerate(path.read_text().splitlines(), 1)]
        if not self._lines:
            raise ConfigError(f"{path}: no line; a trace has one for each node, with its step times in seconds")

    def seconds(self, node: int, step: int) -> float:
        line = self._lines[node % len(self._lines)]
        return line[step % len(line)]


def _numbers(path: Path, number: int, line: str) -> list[float]:
    try:
        seconds = [float(word) for word in line.split()]
    except ValueError as error:
        raise ConfigError(f"{path}, line {number}: {error}; step times in seconds, separated by blanks, are needed") from None
    if not seconds or not all(0 <= value < 1e9 for value in seconds):
        raise ConfigError(f"{path}, line {number}: a line has at least one step time, and none is negative or without end")
    return seconds
