"""An algorithm at work on one model: its vectors beside the parameters, and its hooks around the optimizer's step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from optim import Algorithm, Kind, Step, Vector
from optim.kinds import first_moment
from optim.rate import effective_rate
from p2p.errors import ConfigError, StateError
from p2p.state.mass import Mass
from p2p.state.parts import owners
from p2p.state.shards import Shards
from p2p.state.sources import HALVES, OptimizerSource, Source, collect

LOOK = 20
"""Steps between two looks at the effective learning rate, which reads all gradients once."""
EMA, SHARE = Vector("ema", wide=True), Vector("ema.share", scalar=True)
"""A moving average of the model that begins at 0, and the share of the past that is in it: 1 - decay^steps."""

Criterion = Callable[[], "Tensor | float"]
"""The loss of the model as it is, on the batch at hand."""


class Held:
    """A shared tensor that the algorithm itself holds."""

    in_model = False
    brought = None

    def __init__(self, name: str, owner: str, kind: Kind, tensor: Tensor) -> None:
        self.name, self.owner, self.kind, self.tensor = name, owner, kind, tensor
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype

    def read(self) -> Tensor:
        return self.tensor

    create = read


class Method:
    """For the trainer's thread, but for `changed`. `before`, `after` and `mixed` are to be called in this order, once a step.

    Corrections sum to 0 over the members, and begin anew when these have changed or pushes were lost: who sees that
    proposes a round far enough ahead for all to hear of it, the largest proposal travels as a counter, and all act after
    the same round.
    """

    def __init__(self, algorithm: Algorithm, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        """Raises ConfigError where the algorithm does not go with these optimizers, StateError as `collect` does."""
        _refuse(algorithm, optimizers)
        self.algorithm = algorithm
        collected = collect(model, optimizers, state=algorithm.shares_state)
        names = {source.create(): source.name for source in collected if source.kind is Kind.PARAMETER}
        parts = owners(collected, algorithm.parts)
        self._optimizers = tuple(optimizers)
        self._steps = [
            step
            for optimizer in (optimizers[:1] if algorithm.partial else optimizers)
            for group in optimizer.param_groups
            if (step := _step(algorithm, optimizer, group, names, parts)).x
        ]
        self._count(collected)
        self._anew = torch.zeros((), dtype=torch.float64)  # the round after which corrections begin anew
        self._proposed = self._acted = 0.0
        self._losses = 0
        self.since = 0  # steps since the last exchange
        self._exchanged = False
        self.due = True
        self.rate = 0.0  # effective learning rate when last looked at
        self.criterion: Criterion | None = None
        for s in self._steps:
            s.loss = self._loss
        self.sources: tuple[Source, ...] = (*collected, *self._held(names))
        """All that is shared: the model's, the optimizers' and the algorithm's."""

    def shards(self, block_bytes: int, taken: bool = True) -> Shards:
        """The shared state, laid out as the algorithm's exchange needs it; not `taken`: others' is to come."""
        if self.algorithm.exchange == "mass":
            return Mass(self.sources, block_bytes=block_bytes, taken=taken)
        return Shards(self.sources, block_bytes=block_bytes, live=self.algorithm.exchange == "swap", taken=taken)

    def before(self, step: int, staleness: float = 0.0, span: float = 1.0, part: int = 0) -> None:
        """The optimizer is about to take `step`; `staleness` is what the last exchange found, `span` and `part` see `Step`."""
        if self.algorithm.judges and self.criterion is None:
            raise StateError(
                f"algorithm {self.algorithm.name!r} compares losses: set node.criterion to a function that returns the loss of "
                "the model on the batch at hand"
            )
        scaled = bool(self.algorithm.vectors()) and self._scaled()
        if scaled and not self.algorithm.partial:
            raise StateError(f"algorithm {self.algorithm.name!r} needs unscaled gradients: use GradScaler without fused=True")
        self.since += 1
        self.due = self.since >= self.algorithm.interval(step)
        for s in self._steps:
            s.lr = float(s.group["lr"])
            s.since, s.due, s.staleness, s.span, s.part = self.since, self.due, staleness, span, part
        if step % LOOK == 1 and not self._scaled():
            self.rate = effective_rate(self._steps)
        if not scaled:
            self._call(self.algorithm.before)

    @property
    def silent(self) -> bool:
        """Whether this step is no reason to ask others for a swap."""
        return bool(self._steps) and all(s.silent for s in self._steps)

    @property
    def told(self) -> float:
        """The loss that travels with what is published."""
        return self._steps[0].told if self._steps else 0.0

    def after(self) -> None:
        """The optimizer has stepped; if `due`, the exchange follows."""
        if self.algorithm.corrects:
            self._anew.fill_(max(float(self._anew), self._proposed))
        self._call(self.algorithm.after)

    def mixed(self, round: int, losses: int, members: int) -> None:
        """The exchange of this round is over, or there was none; so many pushes were lost since the beginning."""
        self._call(self.algorithm.mixed)
        if self.algorithm.ema:
            self._call(self._average)
        if self.due:
            self.since, self._exchanged = 0, True
            if losses > self._losses:
                self._losses = losses
                self.changed(round, members)
            if self.algorithm.corrects and self._acted < float(self._anew) <= round:
                self._acted = float(self._anew)
                self._begin_anew(self.algorithm.corrects)

    def changed(self, round: int, members: int) -> None:
        """Any thread: the members are others since this round, or something was lost. What is still to come covers it."""
        if self._exchanged and self.algorithm.corrects and self._proposed <= round:
            self._proposed = float(round + members)

    @torch.no_grad()
    def resumed(self, since: int) -> None:
        """All tensors are a checkpoint's. What sums to 0 with others' begins anew, for theirs is gone: corrections, and what
        exchanges brought."""
        self.since, self._exchanged = since, False
        self._proposed = self._acted = 0.0
        self._anew.zero_()
        brought = [vector.name for vector in self.algorithm.vectors() if vector.brought]
        self._begin_anew([*self.algorithm.corrects, *brought])

    @torch.no_grad()
    def enter(self) -> None:
        """The trainer's thread, between two steps: the model has become another's; what was of the own one counts no longer.

        As in a new joiner: the others' corrections sum to 0 without this node's.
        """
        for tensor in self.local().values():
            tensor.zero_()
        self._proposed = self._acted = 0.0
        self.since, self._exchanged = 0, False

    def local(self) -> dict[str, Tensor]:
        """What is the algorithm's and not shared, by name: with the sources, all of its state."""
        return {
            f"{vector.name}.{group}.{i}": tensor
            for group, s in enumerate(self._steps)
            for vector in _vectors(self.algorithm)
            if not vector.shared
            for i, tensor in enumerate(s[vector.name])
        }

    def ema(self) -> list[tuple[Tensor, Tensor]]:
        """Parameters, each with its moving average (at least 32 bits wide). Raises StateError where there is none."""
        if not self.algorithm.ema:
            raise StateError(f"no moving average is kept: give an algorithm with ema, as {self.algorithm.name}:ema=0.999")
        if not all(float(s[SHARE.name][0]) for s in self._steps):
            raise StateError("the moving average is of past steps, and there is none yet")
        return [(p, average / s[SHARE.name][0]) for s in self._steps for p, average in zip(s.x, s[EMA.name], strict=True)]

    def _average(self, s: Step) -> None:
        rest, averages = 1 - self.algorithm.ema, s[EMA.name]
        torch._foreach_lerp_(averages, [p.to(a.dtype) for p, a in zip(s.x, averages, strict=True)], rest)
        s[SHARE.name][0].lerp_(torch.ones((), dtype=torch.float64), rest)

    def _loss(self) -> float:
        assert self.criterion is not None, "an algorithm that judges has one"
        loss = float(self.criterion())
        return loss if math.isfinite(loss) else math.inf

    def _scaled(self) -> bool:
        """A fused optimizer takes the scale off by itself, later."""
        return any(getattr(optimizer, "grad_scale", None) is not None for optimizer in self._optimizers)

    def _call(self, hook: Any) -> None:
        with torch.no_grad():
            for s in self._steps:
                hook(s)

    def _begin_anew(self, names: Iterable[str]) -> None:
        with torch.no_grad():
            for s in self._steps:
                for tensor in [tensor for name in names for tensor in s[name]]:
                    tensor.zero_()

    def _count(self, sources: Sequence[Source]) -> None:
        """What exchanges bring to first moments joins the vectors that are sums of it."""
        moments = {source.place: source for source in sources if isinstance(source, OptimizerSource)}
        for s in self._steps:
            slot = first_moment(s.optimizer, s.group)
            for vector in self.algorithm.vectors():
                if vector.brought and slot is not None:
                    for p, total in zip(s.x, s[vector.name], strict=True):
                        if (p, slot.key) in moments:
                            moments[p, slot.key].brought = total

    def _held(self, names: Mapping[Tensor, str]) -> Iterator[Source]:
        for s in self._steps:
            for vector in self.algorithm.vectors():
                if vector.shared:
                    for p, tensor in zip(s.x, s[vector.name], strict=True):
                        yield Held(f"algorithm.{names[p]}.{vector.name}", names[p], Kind.SIGNED, tensor)
        if self.algorithm.corrects:
            yield Held("algorithm.anew", "", Kind.COUNTER, self._anew)


def _step(
    algorithm: Algorithm, optimizer: Optimizer, group: dict[str, Any], names: Mapping[Tensor, str], parts: Mapping[str, int]
) -> Step:
    x = [p for p in group["params"] if p in names]
    averages = first_moment(optimizer, group) is not None
    vectors = {v.name: _vector(v, x, averages) for v in _vectors(algorithm)}
    return Step(optimizer, group, x, vectors, parts=[parts[names[p]] for p in x])


def _vectors(algorithm: Algorithm) -> tuple[Vector, ...]:
    return (*algorithm.vectors(), *((EMA, SHARE) if algorithm.ema else ()))


def _vector(vector: Vector, x: Sequence[Tensor], averages: bool) -> list[Tensor]:
    """`averages`: the optimizer has a first moment."""
    if vector.scalar:
        return [torch.zeros((), dtype=torch.float64)]
    return [_zeros(vector, p) for p in x] if averages or not vector.brought else []


def _zeros(vector: Vector, like: Tensor) -> Tensor:
    dtype = torch.float32 if vector.wide and like.dtype in HALVES else like.dtype
    return torch.zeros_like(like, dtype=dtype, requires_grad=False)


def _refuse(algorithm: Algorithm, optimizers: Sequence[Optimizer]) -> None:
    if algorithm.vectors() and len(optimizers) > 1 and not algorithm.partial:
        raise ConfigError(f"algorithm {algorithm.name!r} follows one optimizer; give it one, or use async or gossip")
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    if algorithm.plain and any(group.get("momentum") or "betas" in group for group in groups):
        raise ConfigError(
            f"algorithm {algorithm.name!r} brings its own momentum; give torch.optim.SGD with momentum=0, and set beta there"
        )
