"""Checkpoints on disk: a folder per step, written whole or not at all, and read back only if every byte is what was written.

    step-00001200/
        model.safetensors        parameters and buffers
        optimizer.safetensors    tensors of the optimizers and the algorithm
        state.json               all else: step, epoch, generators, samplers, schedule ...
        manifest.json            sizes and hashes of the three; written last

All is written to a hidden folder, forced to disk, and renamed: whatever dies in between leaves the earlier ones alone.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from p2p.errors import ConfigError, StateError
from p2p.state.manifest import MODEL, NAME, OPTIMIZER, STATE, Manifest

log = logging.getLogger("starlings")

FOLDER = re.compile(r"step-([0-9]{8,15})")
HIDDEN, ASIDE = ".tmp-", "unreadable-"
READING = (StateError, OSError, SafetensorError)
"""What reading a damaged folder raises."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What a checkpoint holds; tensors are contiguous and on the CPU."""

    step: int
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    state: Mapping[str, Any]


# --- writing -----------------------------------------------------------------------------------------------------


def write(root: Path, saved: Saved) -> Path:
    """A new checkpoint below `root`; raises OSError or SafetensorError, and leaves nothing behind, where it can't be."""
    folder, part = root / f"step-{saved.step:08d}", root / f"{HIDDEN}{saved.step:08d}-{os.getpid()}"
    part.mkdir(parents=True)
    try:
        save_file(dict(saved.model), part / MODEL)
        save_file(dict(saved.optimizer), part / OPTIMIZER)
        (part / STATE).write_text(json.dumps(saved.state))
        for name in (MODEL, OPTIMIZER, STATE):
            _force(part / name)
        (part / NAME).write_text(Manifest.of(part, saved.step).text())
        _force(part / NAME)
        _force(part)
        shutil.rmtree(folder, ignore_errors=True)  # of the same step: an earlier attempt that could not be read
        part.rename(folder)
        _force(root)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return folder


def sweep(root: Path) -> None:
    """Remove what an interrupted write has left."""
    for part in root.glob(f"{HIDDEN}*"):
        shutil.rmtree(part, ignore_errors=True)


def prune(root: Path, keep: int) -> None:
    """Remove all but the newest `keep`; what can't be removed is left for the next time."""
    for folder in [path for _, path in _folders(root)][keep:]:
        shutil.rmtree(folder, ignore_errors=True)


def _force(path: Path) -> None:
    """To the disk itself: a file's content, a folder's entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- reading -----------------------------------------------------------------------------------------------------


def read(folder: Path) -> Saved:
    """The checkpoint in a folder, verified. Raises one of READING where a file is missing or is not what was written."""
    manifest = Manifest.read(folder)
    manifest.check(folder)
    try:
        state = json.loads((folder / STATE).read_bytes())
    except (ValueError, RecursionError) as error:
        raise StateError(f"{STATE}: {error}") from None
    if not isinstance(state, dict):
        raise StateError(f"{STATE}: not a checkpoint's state")
    return Saved(manifest.step, load_file(folder / MODEL), load_file(folder / OPTIMIZER), state)


def newest(path: Path) -> Saved | None:
    """The newest checkpoint below `path` (of any node) that can be read; others are passed over with a warning.

    `path` is a checkpoint, a node's folder of them, or a run directory.
    """
    for folder in candidates(path):
        try:
            return read(folder)
        except READING as error:
            log.warning("checkpoint %s is passed over: %s", folder, error)
    return None


def candidates(path: Path) -> list[Path]:
    """Checkpoints at or below `path`, the newest first, by their names."""
    if (path / NAME).exists():
        return [path]
    found = [folder for root in (path, *nodes(path)) for folder in _folders(root)]
    return [folder for _, folder in sorted(found, key=lambda pair: (-pair[0], str(pair[1])))]


def nodes(run: Path) -> list[Path]:
    """Each node's folder of checkpoints in a run directory."""
    return sorted(run.glob("checkpoints/node-*"))


def _folders(root: Path) -> list[tuple[int, Path]]:
    """Checkpoints of one node by step, the newest first."""
    matches = ((FOLDER.fullmatch(path.name), path) for path in _entries(root))
    return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def _entries(root: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from root.iterdir()


# --- while training ----------------------------------------------------------------------------------------------


class Room:
    """Memory for copies of tensors, made once and reused: fresh pages would cost the trainer several times the copying."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def copies(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Contiguous copies on the CPU, valid until the next call."""
        self._kept = {name: self._copy(self._kept.get(name), tensor) for name, tensor in tensors.items()}
        return self._kept

    @staticmethod
    def _copy(kept: Tensor | None, tensor: Tensor) -> Tensor:
        if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
            kept = tensor.new_empty(tensor.shape, device="cpu")
        return kept.copy_(tensor.detach())


Outcome = Callable[[int, float, str], None]
"""What is told of each attempt: its step, its seconds, and why it failed ("" if it didn't); on the writing thread."""


class Saver:
    """Writes a checkpoint every `every` steps from a thread of its own; the trainer copies, and goes on.

    Where a write takes longer than `every` steps, the next one begins at the first step after it. A full disk ends no
    training: the failure is told, and the next checkpoint is tried in its turn.
    """

    def __init__(self, root: Path, every: int, keep: int, step: int, outcome: Outcome, resumed: bool = False) -> None:
        """Training is at `step`. Raises ConfigError for what can't be.

        Checkpoints of later steps are another run's work, unless this one `resumed`: then they could not be read, and are set
        aside, or they would be kept in place of readable ones.
        """
        if every < 1:
            raise ConfigError(f"every={every}: a checkpoint is written every 1 step, or more")
        if keep < 2:
            raise ConfigError(f"keep={keep}: at least 2, or a damaged one would be the only one")
        for at, folder in _folders(root):
            if at > step and not resumed:
                raise ConfigError(
                    f"{root} holds a checkpoint of step {at}, and this run is at step {step}: "
                    "resume from it, or give another folder"
                )
            if at > step:
                shutil.rmtree(root / f"{ASIDE}{folder.name}", ignore_errors=True)
                folder.rename(root / f"{ASIDE}{folder.name}")
        sweep(root)
        self.root, self.every, self.keep = root, every, keep
        self._outcome = outcome
        self._due = step + every
        self._models, self._optimizers = Room(), Room()
        self._thread: threading.Thread | None = None

    def due(self, step: int) -> bool:
        """Whether `save` would write now."""
        return step >= self._due and self.idle

    @property
    def idle(self) -> bool:
        """Whether nothing is being written."""
        return self._thread is None or not self._thread.is_alive()

    def copy(self, saved: Saved) -> Saved:
        """What will be written once `save` is called with it; only if `idle`."""
        self._due = saved.step + self.every
        state = {**saved.state, "every": self.every}
        return Saved(saved.step, self._models.copies(saved.model), self._optimizers.copies(saved.optimizer), state)

    def save(self, copied: Saved) -> None:
        """Write a copy beside the training."""
        self._thread = threading.Thread(target=self._write, args=(copied,), name="starlings-checkpoint")
        self._thread.start()

    def close(self) -> None:
        """Wait for what is being written."""
        if self._thread is not None:
            self._thread.join()

    def _write(self, saved: Saved) -> None:
        began, why = time.monotonic(), ""
        try:
            write(self.root, saved)
            prune(self.root, self.keep)
        except (OSError, SafetensorError) as error:
            why = str(error)
            log.warning("no checkpoint of step %d in %s: %s; training goes on", saved.step, self.root, why)
        self._outcome(saved.step, time.monotonic() - began, why)
