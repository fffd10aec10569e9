"""What synchronous algorithms have in common: rounds that all nodes count together, and a deadline for late neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from optim.algorithm import Algorithm
from optim.robust import RULES, Name, Rule
from topology import SpecError


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a model that takes part in a merge."""

    weight: float  # that the topology gives it
    step: int  # of its node
    loss: float  # that its node sent along, see `Step.told`


@dataclass(frozen=True, slots=True)
class Turn:
    """What one of the rounds that all count together does."""

    round: int  # of the topology
    part: int = 0  # of the shared state, of `parts`
    last: bool = True  # the step ends with it; else one more round belongs to it


@dataclass(frozen=True)
class Synchronous(Algorithm):
    """x_i <- sum_j w_ij y_j, over what came in time. W must be doubly stochastic, so that the mean moves by updates only.

    `deadline=off` waits for every neighbour, however late. A difference far beyond `clip` times the median of the neighbours'
    counts less (0: none does). `robust` is a rule that bears up to `bad` wrong neighbours, see `optim.robust`.
    """

    exchange: ClassVar[Literal["swap", "push", "mass"]] = "push"
    needs: ClassVar[frozenset[str]] = frozenset({"doubly_stochastic"})

    deadline: Literal["adaptive", "off"] = "adaptive"
    clip: float = 3.0
    robust: Name = "none"
    bad: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bad < 0:
            raise SpecError(f"{self.name}: bad is {self.bad}; at least 0 is expected")

    def turn(self, round: int, cycle: int) -> Turn:
        """`cycle`: rounds after which the topology starts again; 1 for one that never does."""
        return Turn(round)

    @property
    def rule(self) -> Rule | None:
        """In place of the mean."""
        return RULES.get(self.robust)

    @property
    def punctual(self) -> bool:
        """What comes late is dropped, for those of one round are compared."""
        return self.rule is not None

    def weigh(self, own: Standing, others: Sequence[Standing]) -> Sequence[float]:
        """The others' weights, in place of the topology's; what is left to 1 is the own model's.

        Called once a round for those that came in time, and with one alone for what comes late. Not negative, and at most 1
        in sum. What differs from the topology's does not keep the mean.
        """
        return [other.weight for other in others]
