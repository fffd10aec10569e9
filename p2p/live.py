"""What people see of a run: a table that lives on a terminal, prefixed lines elsewhere, a summary at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.filesize import decimal as size
from rich.live import Live
from rich.table import Table
from rich.text import Text

from p2p.launcher import describe
from p2p.net.messages import Phase, Status
from p2p.rundir import NodeState

REDRAW = 0.25
"""Seconds between two drawings of the live table."""
REPEAT = 5.0
"""Seconds between two progress lines of one node where there is no terminal."""
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


class PlainView:
    """Lines for files and pipes: each says first which node it is about."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = -float("inf")
        self._steps: list[int] = []

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def note(self, text: str) -> None:
        """On lines of its own."""
        self._print(text)

    def output(self, index: int, line: str) -> None:
        """`node 0 | what it printed`."""
        self._print(f"node {index} | {line}")

    def update(self, states: Sequence[NodeState]) -> None:
        """How each node stands, if any has moved since it was last said."""
        now, steps = time.monotonic(), [state.step for state in states]
        if now - self._told < REPEAT or steps == self._steps:
            return
        self._told, self._steps = now, steps
        for state in states:
            if state.joined:
                self._print(progress(state))

    def _print(self, text: str) -> None:
        self._console.out(text, highlight=False)


class LiveView:
    """A table of the nodes that stays at the foot of the terminal; what they print scrolls above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn = -float("inf")

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Above the table."""
        self._console.print(Text(text, style="bold"), soft_wrap=True)

    def output(self, index: int, line: str) -> None:
        """Above the table, after the node's number in its colour."""
        self._console.print(Text.assemble((f"{index} ", COLOURS[index % len(COLOURS)]), line), soft_wrap=True)

    def update(self, states: Sequence[NodeState]) -> None:
        """Draws the table anew, four times a second at most."""
        if time.monotonic() - self._drawn >= REDRAW:
            self._drawn = time.monotonic()
            self._live.update(_table(states), refresh=True)


def progress(state: NodeState) -> str:
    """One node in one line."""
    scalars = " ".join(f"{name} {_number(value)}" for name, value in state.training.items())
    partners = ",".join(partner[:6] for partner in state.partners) or "none"
    traffic = f"sent {size(state.sent)} received {size(state.received)}"
    return f"node {state.index} | step {state.step} {scalars} partners {partners} {traffic} distance {_number(state.distance)}"


def _table(states: Sequence[NodeState]) -> Table:
    table = _columns("node", "state", "step", "loss", "accuracy", "partners", "sent", "distance", "slow")
    for state in states:
        status = "" if not state.running else "training" if state.joined else "starting"
        table.add_row(
            f"{state.index} {state.id[:6]}",
            status or _ending(state.code),
            str(state.step),
            _number(state.training.get("loss")),
            _number(state.training.get("accuracy")),
            " ".join(partner[:6] for partner in state.partners),
            size(state.sent),
            _number(state.distance),
            " ".join(partner[:6] for partner in state.slow),
        )
    return table


def summary(states: Sequence[NodeState], seconds: float) -> Table:
    """The table at the end: every node as it was just before consensus(), and their average after it."""
    table = _columns("node", "ended", "steps", "loss", "accuracy", "sent", "received", "seconds")
    for state in states:
        table.add_row(f"{state.index} {state.id[:6]}", _ending(state.code), str(state.steps), *_results(state.training),
                      size(state.sent), size(state.received), f"{state.seconds:.1f}")  # fmt: skip
    average = next((state.average for state in states if state.average), {})
    total = [sum(state.sent for state in states), sum(state.received for state in states)]
    table.add_section()
    table.add_row("average", "", "", *_results(average), *map(size, total), f"{seconds:.1f}", style="bold")
    return table


def members(status: Status) -> Table:
    """The swarm, as one of its members sees it."""
    table = _columns("node", "state", "phase", "step", "s/step", "site", "address")
    table.title = f"{status.topology}, {status.algorithm}; step {status.step}, consensus distance {_number(status.distance)}"
    for member in status.members:
        phase = Phase(member.phase).name.lower() if member.phase in tuple(Phase) else str(member.phase)
        address = "dials only" if member.dial_only else member.address
        table.add_row(member.node[:10], member.state, phase, str(member.step), _number(member.pace), member.site, address)
    return table


def links(status: Status) -> Table:
    """The links of the member that was asked."""
    table = _columns("link to", "state", "round trip", "there", "back", "queueing", "credit", "sent", "received")
    for link in status.links:
        table.add_row(
            link.node[:10],
            "paused" if link.paused else "open",
            *_figures(link.round_trip, link.bandwidth, link.back),
            _milliseconds(link.queueing),
            *map(size, (link.credit, link.sent, link.received)),
        )
    return table


def spans(status: Status) -> Table:
    """What all members have measured, from site to site."""
    table = _columns("from site", "to site", "round trip", "there", "queueing", "links")
    for span in status.spans:
        figures = _figures(span.round_trip, span.bandwidth)
        table.add_row(span.source, span.target, *figures, _milliseconds(span.queueing), str(span.links))
    return table


def _figures(round_trip: float, *rates: float) -> tuple[str, ...]:
    """Nothing stands for what is not measured."""
    return _milliseconds(round_trip), *(f"{size(int(rate))}/s" if rate else "" for rate in rates)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds else ""


def _columns(*names: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i, name in enumerate(names):
        table.add_column(name, justify="left" if i < 2 or name in ("partners", "slow") else "right", no_wrap=True)
    return table


def _results(scalars: dict[str, Any]) -> tuple[str, str]:
    return _number(scalars.get("loss")), _number(scalars.get("accuracy"))


def _ending(code: int | None) -> str:
    return "ok" if code == 0 else describe(code).removeprefix("killed by ").replace(" code", "")


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else ""
