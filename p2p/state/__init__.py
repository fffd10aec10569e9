"""The shared state: what is shared, its flat layout, and the only code that writes mixed values to the model."""

from p2p.state.layout import Block
from p2p.state.mean import Mean, holding
from p2p.state.method import Criterion, Method
from p2p.state.outcome import Difference, Meeting
from p2p.state.schema import Entry, Schema, first_difference
from p2p.state.shards import Part, Published, Shards
from p2p.state.snapshot import Snapshot
from p2p.state.sources import Source, collect

__all__ = [
    "Block",
    "Criterion",
    "Difference",
    "Entry",
    "Mean",
    "Meeting",
    "Method",
    "Part",
    "Published",
    "Schema",
    "Shards",
    "Snapshot",
    "Source",
    "collect",
    "first_difference",
    "holding",
]
