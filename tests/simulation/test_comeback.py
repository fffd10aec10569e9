"""Back after a long absence: far behind, a node takes the others' state first; after a cut it goes on from its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.faults import Cut, Stall
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Averaging, Quadratics

Make = Callable[..., SimulatedSwarm]


def returns(made: SimulatedSwarm) -> dict[str, bool]:
    """Node -> whether it found itself out of date when it was back; it may hear more than once that it was away."""
    lines = [line.split(" ", 3) for line in made.journal.lines if " back " in line]
    found = [(name, "outdated=True" in text) for _, name, event, text in lines if event == "back"]
    return {name: (name, True) in found for name, _ in found}


def make(swarm: Make, algorithm: str, *faults: Stall | Cut, **more: object) -> SimulatedSwarm:
    return swarm(
        4,
        algorithm=algorithm,
        compute=Paced(0.25, 0.1),
        underlay=Underlay(0, access=Line(1e-3, 1e-4, 1e8), between=Line(0.01, 1e-3, 1e8)),
        sites=("eu", "us"),
        faults=faults,
        **more,
    )


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_who_stood_still_for_long_takes_the_others_state(swarm: Make, algorithm: str) -> None:
    made = make(swarm, algorithm, Stall(3, at=5.0, for_=40.0)).run(seconds=55.0)
    made.schedule.assert_fired()
    assert returns(made) == {"n3": True}
    steps = [node.agent.step_count for node in made.nodes]
    assert min(steps) > max(steps) - 20
    assert made.nodes[3].steps < 90  # it did not walk there
    assert all(len(node.agent.view) == 4 for node in made.nodes)


@pytest.mark.parametrize("algorithm", ["async", "gossip"])
def test_two_halves_that_were_cut_apart_go_on_from_their_own(swarm: Make, algorithm: str) -> None:
    made = make(swarm, algorithm, Cut(("us",), at=5.0, for_=25.0)).run(seconds=70.0)
    assert set(returns(made).values()) == {False}
    assert all(len(node.agent.view) == 4 for node in made.nodes)


def test_a_short_stall_is_no_absence(swarm: Make) -> None:
    made = make(swarm, "async", Stall(3, at=5.0, for_=5.0)).run(seconds=20.0)
    assert not returns(made)


@pytest.mark.parametrize("algorithm", ["push-sum", "push-sum:overlap=yes"])
def test_mass_comes_back_as_a_joiners(swarm: Make, algorithm: str) -> None:
    """Nothing is learned, so all stay at what they had agreed on: weight 1 comes with a model, whatever there was before."""
    made = make(swarm, algorithm, Stall(3, at=15.0, for_=45.0), workload=Averaging())
    made.run(seconds=75.0)
    assert returns(made) == {"n3": True}
    assert made.nodes[3].agent.report is not None and made.nodes[3].agent.report.partners
    agreed = torch.stack([Averaging().model(node).value.detach() for node in range(4)]).mean(0)
    torch.testing.assert_close(made.vectors(), agreed.expand(4, -1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["d2", "gradient-tracking"])
def test_corrections_of_who_comes_back_begin_anew(swarm: Make, algorithm: str) -> None:
    """With exact gradients these methods end at the minimum of the sum of all functions, if their corrections sum to 0."""
    work = Quadratics(4, learning_rate=0.05)
    topology = "ring:weights=lazy" if algorithm == "d2" else "complete"
    made = make(swarm, algorithm, Stall(3, at=5.0, for_=40.0), workload=work, topology=topology)
    made.run(seconds=100.0)
    assert returns(made) == {"n3": True}
    assert max(work.score(node.model) for node in made.nodes) < 1e-3
