"""`starlings plan`: which topology, algorithm, period, codec and number of nodes."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from p2p.simulate_cli import (
    File,
    Jobs,
    Lan,
    ModelSize,
    Sites,
    StepTime,
    Stragglers,
    Variation,
    Wan,
    option,
    quiet,
)
from p2p.topology_cli import Json, console, table

if TYPE_CHECKING:
    from p2p.planning.search import Plan, Row

Nodes = Annotated[list[str] | None, option("N", "How many; several are compared. [8]", "-n", "--nodes")]
Topologies = Annotated[list[str] | None, option("NAME", "Only these; else the usual ones are searched.")]
Algorithms = Annotated[list[str] | None, option("NAME", "Only these; else async and gossip, with periods 1 to 8.")]
Codecs = Annotated[list[str] | None, option("NAME", "Only these; else raw and bfloat16.")]
Until = Annotated[str | None, option("WHAT", "The target. [loss=0.05,time=1h]")]
Seed = Annotated[str | None, option("N", "Of everything random. [0]")]
Price = Annotated[float, typer.Option(min=0, help="Of one node for an hour.")]
Preemptions = Annotated[float, typer.Option(min=0, help="Of one node in an hour.")]
Recovery = Annotated[float, typer.Option(min=0, help="Seconds until a node that was taken away is replaced.")]
Scaling = Annotated[float, typer.Option(min=0, max=1, help="n times the nodes need n ** -SCALING of the steps.")]
HEAD = ("nodes", "algorithm", "topology", "codec", "time", "cost", "GB", "simulated", "model's error")


def plan(
    scenario: File = None,
    nodes: Nodes = None,
    topology: Topologies = None,
    algorithm: Algorithms = None,
    codec: Codecs = None,
    sites: Sites = None,
    lan: Lan = None,
    wan: Wan = None,
    model_size: ModelSize = None,
    step_time: StepTime = None,
    variation: Variation = None,
    straggler: Stragglers = None,
    until: Until = None,
    seed: Seed = None,
    price: Price = 1.0,
    preemptions: Preemptions = 0.0,
    recovery: Recovery = 60.0,
    scaling: Scaling = 1.0,
    json: Json = False,
    jobs: Jobs = 0,
) -> None:
    """The ways to a target to which no other is better in all of time, cost and bytes; the best are simulated as well."""
    from p2p.planning import search
    from p2p.sim.pool import simulate_all

    options: dict[str, Any] = {
        "nodes": nodes, "topology": topology, "algorithm": algorithm, "codec": codec, "sites": sites, "lan": lan, "wan": wan,
        "model-size": model_size, "step-time": step_time, "variation": variation, "straggler": straggler, "until": until,
        "seed": seed,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value}
    offer = search.Offer(price, preemptions, recovery, scaling)
    with quiet():
        found = search.plan(
            {"until": "loss=0.05,time=1h"} | _file(scenario) | given, offer, lambda runs: simulate_all(runs, jobs=jobs)
        )
    if json:
        print(dumps({"tried": found.tried, "front": [row.as_dict() for row in found.front], "refused": list(found.refused)}))
    else:
        _show(found, _command(scenario, given, found.front[0]))


def _file(path: Path | None) -> dict[str, Any]:
    from p2p.sim.reading import read

    return read(path) if path else {}


def _show(found: Plan, command: str) -> None:
    out = console()
    out.print(table(HEAD, [_row(row) for row in found.front]))
    out.print(f"{len(found.front)} of {found.tried} ways are on the front. The first one, simulated and on machines:")
    out.print(f"  starlings simulate {command}")
    choice = found.front[0].choice
    names = ("nodes", "topology", "algorithm", "codec")
    words = " ".join(f"{'-n' if name == 'nodes' else f'--{name}'} {choice[name]}" for name in names)
    out.print(f"  starlings launch {words} SCRIPT")
    for reason in found.refused:
        out.print(f"left out: {reason}")


def _row(row: Row) -> list[str]:
    error = row.error
    return [
        str(row.scenario.nodes),
        row.scenario.algorithm,
        row.scenario.topology,
        row.scenario.codec,
        f"{row.seconds:.1f} s",
        f"{row.cost:.4g}",
        f"{row.nbytes / 1e9:.2f}",
        "-" if row.simulated is None else f"{row.simulated:.1f} s ({row.prediction.seconds:.1f} s)",
        "-" if error is None else f"{100 * error:+.0f} %",
    ]


def _command(scenario: Path | None, given: dict[str, Any], row: Row) -> str:
    """The options of `simulate` that run this row."""
    settings = {"workload": "quadratic", "until": "loss=0.05,time=1h"} | given | row.choice
    words = [f"--{name} {one}" for name, value in settings.items() for one in (value if isinstance(value, list) else [value])]
    return " ".join([*words, str(scenario)] if scenario else words)
