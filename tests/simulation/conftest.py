"""The fixture `swarm`; and what a failing simulation says: how to replay it, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from p2p.sim.swarm import SimulatedSwarm

LAST_LINES = 40
SWARMS = pytest.StashKey[list[SimulatedSwarm]]()


@pytest.fixture
def swarm(request: pytest.FixtureRequest) -> Iterator[Callable[..., SimulatedSwarm]]:
    """`swarm(n, seed, ...)` makes a `SimulatedSwarm`, with its arguments; call `run` on it."""
    made = request.node.stash[SWARMS] = []

    def make(nodes: int, seed: int = 0, **arguments: Any) -> SimulatedSwarm:
        made.append(SimulatedSwarm(nodes, seed=seed, **arguments))
        return made[-1]

    yield make
    made.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call" and report.failed and item.stash.get(SWARMS, []):
        report.sections.append(("replay", f"python -m pytest '{item.nodeid}'"))
        for made in item.stash[SWARMS]:
            tail = made.journal.lines[-LAST_LINES:]
            report.sections.append(
                (f"seed {made.seed}, {len(made.nodes)} nodes: the last of {len(made.journal.lines)} events", "\n".join(tail))
            )
    return report
