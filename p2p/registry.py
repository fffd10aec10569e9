"""The nodes that are open in this process: they leave at its exit, and a forked child lets go of them."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable

from p2p.notice import notice

_open: dict[Callable[[], None], Callable[[], None]] = {}
"""Of each node that has not left yet: how it leaves, and how a forked child lets go of it."""


def opened(close: Callable[[], None], abandon: Callable[[], None]) -> None:
    """A node is in the swarm."""
    _open[close] = abandon


def closed(close: Callable[[], None]) -> None:
    """It is no more, or has never been."""
    _open.pop(close, None)


def _forked() -> None:
    notice.reset()
    for abandon in _open.values():
        abandon()


@atexit.register
def _leave() -> None:
    """A script that ends without `close` leaves the swarm all the same."""
    for close in list(_open):
        close()


os.register_at_fork(after_in_child=_forked)
