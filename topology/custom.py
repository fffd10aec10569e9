"""A user's own without a class: a function, or a networkx graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from topology.base import Member, Mixing, Properties, Topology
from topology.errors import TopologyError
from topology.mixing import adjacency
from topology.weights import metropolis

if TYPE_CHECKING:
    import networkx


class Function(Topology):
    """A function (members, round) -> Mixing."""

    def __init__(self, function: Callable[[Sequence[Member], int], Mixing]) -> None:
        self._function = function
        self.name = f"<function {getattr(function, '__name__', type(function).__name__)}>"

    def mixing(self, members: Sequence[Member], round: int) -> Mixing:
        """What the function says."""
        return self._function(members, round)


class Graph(Topology):
    """One fixed mixing for one number of members."""

    def __init__(self, mixing: Mixing, name: str = "graph") -> None:
        self.fixed = mixing.validate()
        self.name = f"<{name} of {mixing.n} nodes>"

    @property
    def states(self) -> int:
        """The one number of members that it is for."""
        return self.fixed.n

    def refuses(self, n: int) -> str | None:
        """Any other number."""
        return None if n == self.states else f"{self.name} is for {self.states} members, not {n}"

    def mixing(self, members: Sequence[Member], round: int) -> Mixing:
        """Always the same."""
        return self.fixed

    def properties(self, n: int) -> Properties:
        """Measured; static."""
        if n != self.states:
            return Properties(period=1)
        return super().properties(n)


def from_networkx(graph: networkx.Graph[Any] | Any, name: str = "graph") -> Graph:
    """The topology of a networkx graph; it takes as many members as the graph has nodes, in sorted order of the nodes' names.

    Weights come from the edge data `weight` if every edge has one (an arc u -> v means that v gives it to u's value), else
    they are Metropolis, or push weights for a directed graph. Raises TopologyError, which names the row or node that is wrong.
    """
    position = {node: i for i, node in enumerate(sorted_nodes(graph))}
    pairs = [(position[v], position[u], data.get("weight")) for u, v, data in graph.edges(data=True)]
    given = [weight for _, _, weight in pairs if weight is not None]
    if not position:
        raise TopologyError("the graph has no nodes")
    if given and len(given) < len(pairs):
        raise TopologyError(f"{len(given)} of {len(pairs)} edges have a weight; give all of them one, or none")
    return Graph(_mix(len(position), pairs, bool(given), graph.is_directed()), name)


def sorted_nodes(graph: Any) -> list[Any]:
    """Whole numbers, as such or as text, by value; everything else by its text."""
    nodes = list(graph.nodes)
    numbers = all(str(node).isdecimal() for node in nodes)
    return sorted(nodes, key=lambda node: int(str(node))) if numbers else sorted(nodes, key=str)


def _mix(n: int, pairs: list[tuple[int, int, Any]], weighted: bool, directed: bool) -> Mixing:
    arcs = [(receiver, sender) for receiver, sender, _ in pairs]
    if not weighted:
        return Mixing.push(n, arcs) if directed else Mixing.undirected(n, arcs, metropolis)
    adjacency(n, arcs)
    weights = {(receiver, sender): float(w) for receiver, sender, w in pairs}
    if not directed:
        weights |= {(sender, receiver): w for (receiver, sender), w in weights.items()}
    return Mixing.directed(n, weights)
