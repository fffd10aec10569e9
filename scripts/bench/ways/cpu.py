"""CPU seconds of this process, by what its threads do: the one that calls, the agent's loop and others, ZeroMQ's."""

from __future__ import annotations

import threading
from pathlib import Path


class Cpu:
    """Linux. A thread that has ended counts no more."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._caller = str(threading.get_native_id())

    def begin(self) -> None:
        """Count from now."""
        self._before = self._now()

    def spent(self) -> dict[str, float]:
        """Since `begin`."""
        return {who: seconds - self._before.get(who, 0.0) for who, seconds in self._now().items()}

    def _now(self) -> dict[str, float]:
        found = {"trainer": 0.0, "agent": 0.0, "network": 0.0}
        for task in Path("/proc/self/task").iterdir():
            try:
                name, spent = (task / "comm").read_text(), (task / "schedstat").read_text()
            except OSError:
                continue
            who = "network" if name.startswith("ZMQ") else "trainer" if task.name == self._caller else "agent"
            found[who] += int(spent.split()[0]) / 1e9
        return found
