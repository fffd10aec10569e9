"""The errors of this package.

TopologyError(ValueError)
└── TopologyRefused    the topology is sound, but can't take these members; says which number it can take
"""

from __future__ import annotations


class TopologyError(ValueError):
    """A graph, a weight or a name that can't be: what, where, and what would do."""


class TopologyRefused(TopologyError):
    """A sound topology that can't take this view."""
