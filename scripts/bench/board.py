"""What a crew shares while it trains: each rank's latest parameters and step, and where to stop. A file mapped by all.

Nobody waits for anybody at it, so it costs a copy of the model; what is read may be of the midst of a write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

NEVER = 2**31 - 1
GO_ON = 3
"""Steps that the foremost may still take once the end is called: more than any rank takes while it is being written."""


class Board:
    """Of `ranks` models with so many parameters; the first to open it makes it."""

    def __init__(self, folder: Path, ranks: int, size: int, new: bool = False) -> None:
        layout = np.dtype([("last", np.int64), ("steps", np.int64, (ranks,)), ("models", np.float32, (ranks, size))])
        self._all: npt.NDArray[Any] = np.memmap(folder / "board", layout, "w+" if new else "r+", shape=(1,))
        if new:
            self._all[0]["last"] = NEVER

    def note(self, rank: int, step: int, model: npt.NDArray[np.float32]) -> None:
        """How a rank stands after so many steps."""
        self._all[0]["models"][rank] = model
        self._all[0]["steps"][rank] = step

    def mean(self) -> npt.NDArray[np.float32]:
        """Of the models as they are now."""
        return np.asarray(self._all[0]["models"].mean(0))

    def call(self) -> None:
        """All stop at the same step, soon: nobody waits for one that has stopped."""
        self._all[0]["last"] = int(self._all[0]["steps"].max()) + GO_ON

    @property
    def called(self) -> bool:
        return self.last < NEVER

    @property
    def last(self) -> int:
        """The step after which all stop."""
        return int(self._all[0]["last"])
