"""The errors of this package.

SpecError(ValueError)    a name or a parameter that can't be
TopologyError(ValueError)
└── TopologyRefused    the topology is sound, but can't take these members; says which number it can take
"""

from __future__ import annotations

from collections.abc import Callable


class SpecError(ValueError):
    """A name or a parameter that can't be; says what would do."""


class TopologyError(ValueError):
    """A graph, a weight or a name that can't be: what, where, and what would do."""


class TopologyRefused(TopologyError):
    """A sound topology that can't take this view."""


def unfit(name: str, takes: str, n: int, works: Callable[[int], bool]) -> str | None:
    """Why `name` refuses n, with the nearest numbers that it takes; None if it takes n."""
    if works(n):
        return None
    less = next((m for m in range(n - 1, 0, -1) if works(m)), None)
    more = next((m for m in range(n + 1, 4 * n + 8) if works(m)), None)
    near = " or ".join(str(m) for m in (less, more) if m is not None)
    return f"{name} takes {takes}, not {n}; {near} would do" if near else f"{name} takes {takes}, not {n}"


def bounded(what: str, value: int, low: int, high: int = 1024) -> None:
    """Raises TopologyError unless low <= value <= high. The upper end keeps a spec that came from a peer from costing much."""
    if not low <= value <= high:
        raise TopologyError(f"{what} must be from {low} to {high}, not {value}")
