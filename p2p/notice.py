"""SIGTERM while nodes are open: a notice that the end is near, as a spot machine gets.

The loop has `GRACE` seconds to see `node.leaving` and end by itself; then SystemExit ends it, and its `with` block leaves the
swarm. A handler that the user has set is called instead. Ctrl-C needs nothing: KeyboardInterrupt leaves by the same way.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

GRACE = 1.0
"""Seconds. Leaving takes the rest of the five that a launcher, or a spot machine's owner, grants."""


class Notice:
    """One per process, for signals are the process's; all calls are made by whoever opens and closes nodes."""

    def __init__(self) -> None:
        self.given = False
        self._nodes = 0
        self._before: object = signal.SIG_DFL
        self._timer: threading.Timer | None = None

    @property
    def ending(self) -> bool:
        """Whether the loop has only `GRACE` left; not where a handler of the user's decides."""
        return self.given and self._timer is not None

    def watch(self) -> None:
        """A node opens. Outside the main thread, and where SIGTERM is ignored, no handler is set."""
        self._nodes += 1
        before = signal.getsignal(signal.SIGTERM)
        if self._nodes == 1 and _in_main_thread() and before not in (self._heed, signal.SIG_IGN, None):
            self._before = before
            signal.signal(signal.SIGTERM, self._heed)

    def unwatch(self) -> None:
        """A node has closed; with the last one the handler goes."""
        self._nodes -= 1
        if self._nodes == 0:
            self.reset()

    def reset(self) -> None:
        """As before the first node; in a forked child too, whose parent the nodes belong to."""
        self._nodes, self.given = 0, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if _in_main_thread() and signal.getsignal(signal.SIGTERM) == self._heed:
            signal.signal(signal.SIGTERM, self._before)  # type: ignore[arg-type]

    def _heed(self, number: int, frame: FrameType | None) -> None:
        again, self.given = self.given, self._nodes > 0
        if callable(self._before):
            self._before(number, frame)
        elif again or not self.given:
            raise SystemExit(128 + number)
        else:
            self._timer = threading.Timer(GRACE, _insist)
            self._timer.daemon = True
            self._timer.start()


def _insist() -> None:
    """Once more, to the thread that may be waiting for something."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


notice = Notice()
