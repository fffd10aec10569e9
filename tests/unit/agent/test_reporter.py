"""What the log says of how often blocks are mixed: once per material change."""

from types import SimpleNamespace

import pytest

from p2p.agent.reporter import Reporter


class Looks:
    """A reporter that looks every 20 steps, in which so many rounds were made."""

    def __init__(self) -> None:
        self.exchange = SimpleNamespace(mean_round=0.0)
        algorithm = SimpleNamespace(interval=lambda step: 1, parts=1)
        self.agent = SimpleNamespace(
            step_count=0, view=("a", "b"), exchange=self.exchange, task=SimpleNamespace(algorithm=algorithm)
        )
        self.reporter = Reporter(self.agent)  # type: ignore[arg-type]

    def look(self, interval: float) -> None:
        self.agent.step_count += 20
        self.exchange.mean_round += 20 / interval
        assert self.reporter._mixing_interval() == pytest.approx(interval)


def test_rare_mixing_is_told_once_per_material_change(caplog: pytest.LogCaptureFixture) -> None:
    looks, said = Looks(), list[int]()
    for interval in (1.0, 2.9, 4.0, 3.5, 2.0, 4.5, 7.9, 8.1, 15.0, 1.4, 3.2):
        caplog.clear()
        looks.look(interval)
        said += [len(caplog.records)]
    assert said == [0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1]
