"""The benches of joins and resumes: which steps count as beside a join, and at how many samples two runs are compared."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

MODULES = ("harness", "join", "resume")


class Crew:
    """A member with steps before, across, inside and after a join from 10 to 11, and the joiner."""

    def say(self, word: str) -> list[Any]:
        cpu = {"trainer": 0.1, "agent": 0.2, "network": 0.3}
        if word == "join":
            return [{"began": 0.0, "ended": 0.0}, {"began": 10.0, "ended": 11.0}]
        if word == "look":
            steps = [(8.0, 9.5), (9.5, 10.1), (10.1, 10.9), (10.9, 12.0), (12.0, 13.0)]
            return [{"steps": steps, "cpu": cpu}, {"steps": [], "cpu": cpu}]
        return [[(14.0, 14.5)], []]


def test_steps_that_overlap_a_join_are_told_from_those_in_the_calm(bench: dict[str, ModuleType]) -> None:
    found = bench["join"].measure(Crew(), joins=2)
    assert found["seconds"] == [1.0, 1.0], "the first one is a warm-up"
    assert found["during"] == pytest.approx([0.6, 0.8, 1.1] * 2)
    assert found["calm"] == [0.5, 0.5]
    assert found["joiner's network"] == [0.3, 0.3]
    table = bench["join"].table(100.0, 1, {bench["join"].RAW: {**found, "during": []}, "join": found})
    assert table.rows[1][:3] == ("join", "1000.0 (1000.0 to 1000.0)", "1.00")
    aims = bench["join"].aims(100.0, 1, {bench["join"].RAW: found, "join": found})
    assert [(aim.got, aim.held) for aim in aims] == [(1.0, "yes"), (pytest.approx(1.6), "no")]


def test_a_run_goes_on_at_the_samples_that_all_had_processed_by_its_checkpoint(bench: dict[str, ModuleType]) -> None:
    """What was done later in that leg is done again, and steps are each node's own."""
    weights, look = np.zeros((10, 65)), bench["resume"].Look
    looks = [
        look(0, 0, 5, 1.0, 50, weights),
        look(0, 1, 10, 2.0, 100, weights),
        look(0, 0, 10, 3.0, 90, weights),  # the second to reach step 10: its checkpoint is no newer
        look(1, 0, 15, 9.0, 60, weights),
    ]
    curve, begins = bench["resume"].losses(looks, [(0, 0), (10, 1)])
    assert [samples for samples, _ in curve] == [50, 150, 210]
    assert begins == [0, 150]
    assert curve[0][1] == pytest.approx(np.log(10))


def test_windows_cover_each_leg(bench: dict[str, ModuleType]) -> None:
    assert bench["resume"].windows([100, 200, 400], 2) == [(100, 150), (150, 200), (200, 300), (300, 400)]
    curve = [(100, 1.0), (200, 0.5)]
    assert bench["resume"].within(curve, 100, 200) == pytest.approx(0.75)
