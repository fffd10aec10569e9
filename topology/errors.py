"""The errors of this package.

SpecError(ValueError)    a name or a parameter that can't be
TopologyError(ValueError)
└── TopologyRefused    the topology is sound, but can't take these members; says which number it can take
"""

from __future__ import annotations


class SpecError(ValueError):
    """A name or a parameter that can't be; says what would do."""


class TopologyError(ValueError):
    """A graph, a weight or a name that can't be: what, where, and what would do."""


class TopologyRefused(TopologyError):
    """A sound topology that can't take this view."""
