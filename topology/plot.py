"""Pictures: the graph of a topology and its consensus error by round. Needs matplotlib (the extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topology.analysis import errors
from topology.base import Member, Topology
from topology.convergence import WINDOW
from topology.errors import TopologyError
from topology.registry import make, spec_of

ROUNDS = 40


def plot(topologies: Sequence[str | Topology], members: Sequence[Member], path: str | Path) -> None:
    """Writes one picture (.png, .svg or .pdf): each topology's graph over a period, and the errors of all by round."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise TopologyError("plots need matplotlib: pip install 'starlings[plot]'") from missing
    made = [make(spec) for spec in topologies]
    figure = Figure(figsize=(4 * (len(made) + 1), 4), layout="constrained")
    axes = figure.subplots(1, len(made) + 1, squeeze=False)[0]
    for topology, axis in zip(made, axes, strict=False):
        _draw(topology, members, axis)
    for topology in made:
        axes[-1].semilogy([max(e, 1e-16) for e in errors(topology, members, ROUNDS)], label=spec_of(topology))
    axes[-1].set(xlabel="round", ylabel="||product - J||", ylim=(1e-6, 2))
    axes[-1].legend(fontsize=8)
    figure.savefig(path)


def _draw(topology: Topology, members: Sequence[Member], axis: Any) -> None:
    import networkx

    period = topology.properties(len(members)).period or WINDOW
    graph: Any = networkx.DiGraph()
    graph.add_nodes_from(range(len(members)))
    for t in range(period):
        rows = topology.whole(members, t).rows
        graph.add_edges_from((j, i) for i, row in enumerate(rows) for j in row if i != j)
    sites = sorted({m.site for m in members})
    colours = [sites.index(m.site) for m in members]
    networkx.draw_networkx(
        graph, networkx.circular_layout(graph), ax=axis, node_color=colours, cmap="Pastel1", node_size=160, font_size=7,
        edge_color="#8899aa", arrowsize=6, width=0.8,
    )  # fmt: skip
    axis.set_title(spec_of(topology), fontsize=9)
    axis.set_axis_off()
