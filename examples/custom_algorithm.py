"""Your own algorithm in one class: gossip whose models keep a little of their own disagreement.

    starlings launch -n 4 --algorithm custom_algorithm:Diverse examples/digits.py               # PYTHONPATH=examples
    starlings launch -n 4 --algorithm custom_algorithm:Diverse:keep=0.3 examples/digits.py
    python examples/custom_algorithm.py                                                          # three nodes, simulated

A class derives from the kind of exchange that it needs: `optim.Synchronous` (rounds that all count together),
`optim.Async` (live swaps, no waiting) or `optim.PushSum`. Its fields are its parameters on the command line.
It says what it keeps beside each parameter (`vectors`; a shared one travels and is mixed like the parameters), and what it
does at three moments of a step, on lists of tensors: `before` the optimizer, `after` it, and once all is `mixed`.
What it needs of a topology stands in `needs`: a pair that can't converge is refused before training starts.

To be found by its name alone, an installed package lists it as an entry point of the group `starlings.algorithms`.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

import optim
from optim import Step, Vector
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Quadratics


@optim.register("diverse")  # so that it also has a name, where this module is imported
@dataclass(frozen=True)
class Diverse(optim.Synchronous):
    """x <- (1 - keep) W y + keep y, with y = x - lr g: `keep` of what the others would have changed is left out."""

    needs: ClassVar[frozenset[str]] = frozenset({"doubly_stochastic"})

    keep: float = 0.1

    def vectors(self) -> tuple[Vector, ...]:
        """The model as it was published."""
        return (Vector("published"),)

    def after(self, s: Step) -> None:
        """What the optimizer has made is about to be published: remember it."""
        torch._foreach_copy_(s["published"], s.x)

    def mixed(self, s: Step) -> None:
        """Go a part of the way back."""
        torch._foreach_lerp_(s.x, s["published"], self.keep)


def main() -> None:
    """How far apart the nodes stay, and how far the mean is from the optimum, for some values of `keep`."""
    work = Quadratics(3)
    print(f"{'algorithm':24} {'distance':>9} {'error':>9}")
    for keep in (0.0, 0.3, 0.9):
        swarm = SimulatedSwarm(3, topology="ring", algorithm=Diverse(keep=keep), workload=work).run(steps=80)
        error = (swarm.vectors().mean(0) - work.minimum).square().mean().sqrt()
        print(f"{optim.spec_of(Diverse(keep=keep)):24} {swarm.distance():9.4f} {error:9.4f}")


if __name__ == "__main__":
    main()
