"""How one knows that a state is whole: what it consists of, with hashes.

On disk the manifest is a JSON file, written last: without it a folder is no checkpoint. For a joiner it is streamed, so
that the first blocks leave before the last ones are read: a head that says which snapshot this is, signed by the donor
with its half of a key, and a line for each bundle of blocks, sealed with that key.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p2p.errors import StateError

NAME = "manifest.json"
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
FILES = (MODEL, OPTIMIZER, STATE)
"""What a checkpoint consists of; a manifest that names anything else is refused."""
FORMAT = 1
MANIFEST_BYTES = 64 * 1024
STATE_BYTES = 64 * 1024 * 1024
"""The longest manifest and state files: no more is read into memory before it is checked."""
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """One file."""

    nbytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Part:
        """What the file is now."""
        digest, nbytes = hashlib.sha256(), 0
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                nbytes += len(chunk)
        return cls(nbytes, digest.hexdigest())

    def check(self, path: Path) -> None:
        """Raises StateError unless the file is this. Sizes are compared first; links and pipes are no files."""
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size != self.nbytes:
            raise StateError(f"{path.name}: {found.st_size} bytes; the manifest says {self.nbytes}")
        if Part.of(path) != self:
            raise StateError(f"{path.name}: its hash is not the manifest's")


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint's."""

    step: int
    parts: Mapping[str, Part]

    @classmethod
    def of(cls, folder: Path, step: int) -> Manifest:
        """Of the files that are there now."""
        return cls(step, {name: Part.of(folder / name) for name in FILES})

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The folder's. Raises StateError for what is none, OSError where there is none."""
        path = folder / NAME
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise StateError(f"{NAME} is no file")
        with path.open("rb") as file:
            text = file.read(MANIFEST_BYTES + 1)
        if len(text) > MANIFEST_BYTES:
            raise StateError(f"{NAME} is longer than {MANIFEST_BYTES} bytes")
        try:
            return cls._parsed(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise StateError(f"{NAME}: {error}") from None

    def text(self) -> str:
        """What `read` reads."""
        parts = {name: {"bytes": part.nbytes, "sha256": part.sha256} for name, part in self.parts.items()}
        return json.dumps({"format": FORMAT, "step": self.step, "files": parts}, indent=2)

    def check(self, folder: Path) -> None:
        """Raises StateError where a file is not what was written."""
        for name, part in self.parts.items():
            part.check(folder / name)

    @classmethod
    def _parsed(cls, found: Any) -> Manifest:
        if not isinstance(found, dict) or set(found) != {"format", "step", "files"} or not isinstance(found["files"], dict):
            raise ValueError("not a manifest")
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']!r}; this release reads {FORMAT}")
        if set(found["files"]) != set(FILES):
            raise ValueError(f"it names {sorted(found['files'])}; {', '.join(FILES)} are expected")
        parts = {name: _part(name, part) for name, part in found["files"].items()}
        if parts[STATE].nbytes > STATE_BYTES:
            raise ValueError(f"{STATE} of {parts[STATE].nbytes} bytes; {STATE_BYTES} at most")
        return cls(_whole("step", found["step"]), parts)


def _part(name: str, found: Any) -> Part:
    if not isinstance(found, dict) or set(found) != {"bytes", "sha256"} or not isinstance(found["sha256"], str):
        raise ValueError(f"{name}: bytes and sha256 are expected")
    return Part(_whole(name, found["bytes"]), found["sha256"])


def _whole(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise ValueError(f"{name} is {str(value)[:40]}: a whole number is expected")
    return value


# --- for a joiner ------------------------------------------------------------------------------------------------


def head(schema: bytes, snapshot: int, step: int, epoch: int, round: int, extras: str, half: bytes) -> bytes:
    """What a donor signs of a snapshot: the fingerprint of names, shapes, dtypes and blocks, how far training was, and its
    half of the key that seals the blocks."""
    return json.dumps(["starlings snapshot", schema.hex(), snapshot, step, epoch, round, extras, half.hex()]).encode()


def line(schema: bytes, snapshot: int, first: int, count: int) -> bytes:
    """What a donor seals with `count` blocks from `first`."""
    return json.dumps(["starlings blocks", schema.hex(), snapshot, first, count]).encode()
