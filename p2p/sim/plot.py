"""Pictures of simulated runs: loss, and distance to the mean, over virtual time. Needs matplotlib (the extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from p2p.errors import ConfigError
from p2p.sim.trial import Result

FORMS = (".png", ".svg", ".pdf")


def ready(path: Path) -> None:
    """Raises ConfigError where nothing can be drawn, before the time to simulate it is spent."""
    if path.suffix not in FORMS:
        raise ConfigError(f"plot: {path} must end in {', '.join(FORMS)}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"plot: there is no folder {path.absolute().parent}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'starlings[plot]'") from None


def draw(results: Sequence[Result], path: Path) -> None:
    """One line per choice, of its first seed, and thinner ones for the others."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    choices = list(dict.fromkeys(result.scenario.choice for result in results))
    first: set[str] = set()
    for result in results:
        choice = result.scenario.choice
        times = [look.time for look in result.looks]
        style = {"color": f"C{choices.index(choice) % 10}", "linewidth": 0.6 if choice in first else 1.6}
        left.plot(times, [look.loss for look in result.looks], label=None if choice in first else choice, **style)
        right.plot(times, [max(look.distance, 1e-12) for look in result.looks], **style)
        first.add(choice)
    left.set(xlabel="virtual seconds", ylabel="loss of the mean model", yscale="log")
    right.set(xlabel="virtual seconds", ylabel="distance to the mean", yscale="log")
    left.legend(fontsize=8)
    figure.savefig(path)
