"""A node's checkpoints: when one is written, what goes into it, and how a node goes on from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from p2p import extras
from p2p.errors import ConfigError, StateError
from p2p.report import EventLog, Metrics
from p2p.state import Method, Shards, rng
from p2p.state.checkpoint import Saved, Saver, newest
from p2p.state.training import capture, groups, restore


class Saving:
    """For the trainer's thread. `root` is where checkpoints go by default, None where there is no run directory."""

    def __init__(
        self,
        root: Path | None,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        scheduler: LRScheduler | None,
        scaler: GradScaler | None,
        events: EventLog,
        metrics: Metrics,
    ) -> None:
        self._root = root
        self._model, self._optimizers = model, optimizers
        self._scheduler, self._scaler = scheduler, scaler
        self._events, self._metrics = events, metrics
        self._saver: Saver | None = None
        self._held: Saved | None = None
        self._step = -1  # of what is held, or was last
        self._generators: Any = None

    def extras(self) -> str:
        """The state of schedule and GradScaler."""
        return extras.dump(self._scheduler, self._scaler)

    def take(self, text: str) -> None:
        """Another's, as this node's."""
        extras.load(text, self._scheduler, self._scaler)

    # --- writing -----------------------------------------------------------------------------------------------------

    def begin(self, every: int, keep: int, path: Path | None, step: int, resumed: bool) -> None:
        """From now on, every `every` steps."""
        root = path or self._root
        if root is None:
            raise ConfigError("checkpoint() needs path=: there is no run directory (STARLINGS_RUN_DIR) to write to")
        self.finish()
        self._saver = Saver(root, every, keep, step, self._outcome, resumed)

    def due(self, step: int, last: bool = False) -> bool:
        """Whether to `hold` this step; `last`: it may be the last one."""
        if self._saver is None:
            return False
        return self._saver.due(step) or (last and self._step != step and self._saver.idle)

    def hold(self, step: int, method: Method, rest: Mapping[str, Any]) -> None:
        """After a due step: copy what the next one depends on. It is written when that begins: until then schedules move on."""
        if self._saver is not None:
            self._held = self._saver.copy(capture(step, self._model, self._optimizers, method, rest))
            self._step = step

    def write(self) -> None:
        """The next step begins, or there is none: write what is held, with schedule, GradScaler and learning rates of now."""
        held, self._held = self._held, None
        if held is not None and self._saver is not None:
            tensors = dict(held.optimizer)
            state = {**held.state, "groups": groups(self._optimizers, tensors), "extras": self.extras()}
            self._saver.save(Saved(held.step, held.model, tensors, state))

    def finish(self) -> None:
        """Write what is held, and wait until it is on the disk."""
        self.write()
        self.rest()

    def rest(self) -> None:
        """Wait for what is being written."""
        if self._saver is not None:
            self._saver.close()

    def _outcome(self, step: int, seconds: float, why: str) -> None:
        self._metrics.add("checkpoints", "failed" if why else "written")
        self._events.write("checkpoint", step=step, seconds=seconds, error=why)

    # --- going on ----------------------------------------------------------------------------------------------------

    def found(self, resume: Path, needed: bool) -> Saved | None:
        """The newest checkpoint there; StateError where there is none that can be read, if one is `needed`."""
        saved = newest(resume)
        if saved is None and needed:
            raise StateError(f"{resume} holds no checkpoint that can be read: give a run directory, or one of its checkpoints")
        return saved

    def restore(self, saved: Saved, method: Method, shards: Shards) -> None:
        """Go on from there, with the generators of that moment."""
        restore(saved, self._model, self._optimizers, method)
        self.take(str(saved.state["extras"]))
        shards.retake()
        self._generators = saved.state["generators"]
        self.reseed()

    def reseed(self) -> None:
        """Before the first step, where a pass is taken up in its middle: a DataLoader draws a number as it begins."""
        if self._generators is not None:
            rng.restore(self._generators)

    def stepped(self) -> None:
        """The generators are the trainer's from now on."""
        self._generators = None
