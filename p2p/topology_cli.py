"""`starlings topology`: which there are, and what they cost and bring."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from p2p import units
from p2p.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from topology import Analysis

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Who can talk with whom: list them, compare them.")

WIDTH = 160
"""Columns where no terminal says how many there are."""

Json = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.command("list")
def list_(json: Json = False) -> None:
    """All topologies by name, with their parameters."""
    from topology import catalog

    known = catalog()
    if json:
        print(dumps({name: {"parameters": parameters, "about": about} for name, (parameters, about) in known.items()}))
        return
    rows = [[name, ", ".join(f"{k}={v}" for k, v in values.items()), about] for name, (values, about) in known.items()]
    console().print(table(("name", "parameters", "what it is"), rows))


@app.command()
def show(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="As for --topology: ring, base:k=2, module:Class.")],
    nodes: Annotated[int, typer.Option("-n", "--nodes", min=1, help="How many members.")] = 16,
    sites: Annotated[int, typer.Option(min=1, help="In so many datacenters.")] = 1,
    lan: Annotated[str, typer.Option(help="Bandwidth of a link inside a site.")] = "10gbit",
    wan: Annotated[str, typer.Option(help="Bandwidth of a link between sites.")] = "100mbit",
    payload: Annotated[str, typer.Option(help="What goes over an edge in a round.")] = "100MB",
    json: Json = False,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the graphs and their errors, as .png or .svg.")] = None,
) -> None:
    """Contraction, rounds and time to consensus (an error of 0.001), degree and bytes, on given links."""
    import topology

    inside, between, bytes_ = units.bandwidth(lan), units.bandwidth(wan), units.size(payload)
    try:
        found = topology.analyze(names, nodes, sites=sites, lan=inside, wan=between, payload=bytes_)
        if plot:
            from topology.plot import plot as draw

            draw(names, topology.canonical(nodes, sites), plot)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if json:
        print(dumps([one.as_dict() for one in found]))
        return
    out = console()
    out.print(table(HEAD, [_row(one) for one in found]))
    for note in _notes(found):
        out.print(note)


HEAD = ("topology", "contraction", "gap", "rounds", "degree", "MB per step", "s per round", "s to consensus", "busiest link")


def _row(one: Analysis) -> list[str]:
    if one.refused:
        return [one.name, *["refused"] * 2, *["-"] * 6]
    return [
        one.name,
        f"{one.contraction:.4f}",
        f"{one.gap:.4f}",
        str(one.rounds) if one.rounds is not None else "never",
        str(one.degree),
        f"{one.bytes_per_step / 1e6:.1f}",
        f"{one.round_time:.3g}",
        f"{one.consensus_time:.3g}" if one.consensus_time is not None else "never",
        one.busiest_link,
    ]


def _notes(found: list[Analysis]) -> Iterator[str]:
    for one in found:
        for text in filter(None, (one.refused, one.remark)):
            yield f"{one.name}: {text}"


def console() -> Console:
    """For text that comes from elsewhere: nothing in it is markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else WIDTH
    return Console(markup=False, emoji=False, highlight=False, width=width)


def table(head: Sequence[str], rows: list[list[str]]) -> Table:
    """Columns, without lines."""
    from rich.table import Table

    table = Table(*head, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    return table
