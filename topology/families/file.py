"""A graph from a file: GraphML, edge list or adjacency list, as networkx reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from topology.base import Member, Mixing, Properties, Topology
from topology.custom import Graph, from_networkx
from topology.errors import TopologyError
from topology.registry import register

BYTES_MAX = 64 * 1024 * 1024


@register("file")
@dataclass(frozen=True)
class File(Topology):
    """A graph from a file. By suffix: .graphml; .adj, .adjlist (a node and its neighbours a line); everything else is an
    edge list (two nodes a line, and their weight, if there are weights). All nodes of a swarm need the same file."""

    path: str

    def __post_init__(self) -> None:
        _ = self.graph

    @cached_property
    def graph(self) -> Graph:
        """The graph, read once. Raises TopologyError if the file can't be read, or isn't what its suffix says."""
        path = Path(self.path)
        try:
            if path.stat().st_size > BYTES_MAX:
                raise TopologyError(f"{path} has {path.stat().st_size} bytes; a graph's file has at most {BYTES_MAX}")
            return from_networkx(_reader(path)(path), path.name)
        except OSError as error:
            raise TopologyError(f"can't read {path}: {error.strerror or error}") from error
        except TopologyError as error:
            raise TopologyError(f"{path}: {error}") from error
        except (ValueError, TypeError, KeyError, SyntaxError, LookupError) as error:
            raise TopologyError(f"{path} is no {_kind(path)}: {error}") from error

    @property
    def states(self) -> int:
        """The one number of members that it is for."""
        return self.graph.states

    def refuses(self, n: int) -> str | None:
        """Any other number."""
        return self.graph.refuses(n)

    def mixing(self, members: Sequence[Member], round: int) -> Mixing:
        """Always the same."""
        return self.graph.fixed

    def properties(self, n: int) -> Properties:
        """The graph's."""
        return self.graph.properties(n)


def _kind(path: Path) -> str:
    return {".graphml": "GraphML", ".adj": "adjacency list", ".adjlist": "adjacency list"}.get(path.suffix, "edge list")


def _reader(path: Path) -> Callable[[Path], Any]:
    import networkx

    readers: dict[str, Callable[[Path], Any]] = {
        "GraphML": networkx.read_graphml,
        "adjacency list": networkx.read_adjlist,
        "edge list": _edge_list,
    }
    return readers[_kind(path)]


def _edge_list(path: Path) -> Any:
    import networkx

    lines = (line.partition("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines())
    graph: Any = networkx.Graph()
    for number, words in enumerate(lines, 1):
        if words and len(words) not in (2, 3):
            raise ValueError(f"line {number} has {len(words)} words; it must be two nodes and perhaps a weight")
        if words:
            graph.add_edge(words[0], words[1], **({"weight": float(words[2])} if len(words) == 3 else {}))
    return graph
