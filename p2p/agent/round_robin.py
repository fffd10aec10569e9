"""Weighted round robin: whom each block asks, by the rows of its own rounds and by who has credit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Row = Sequence[tuple[str, float]]
"""Whom to ask in one round, with weights that sum to 1 (the self weight dropped); empty where nobody."""

PEEK = 8  # rounds that a block looks ahead for a partner with credit
DEBT = 2.0  # swaps that one partner may be owed of one block, or have had before their time
SMALL = 1e-9  # no debt: what rounding leaves


@dataclass(slots=True)
class Block:
    """One block's part in swaps."""

    run: int  # consecutive blocks travel together only inside a run
    nbytes: int
    round: int = 0  # of the topology: how many rows were looked at
    swaps: int = 0  # own ones opened
    due: float = 0.0
    held: int = 0  # own swaps open and not overdue
    answered: bool = False  # another's swap, while an own one is open
    debts: dict[str, float] = field(default_factory=dict)
    """Swaps that each partner is owed: with those that were begun they add up to the rounds that were due."""

    def choose(self, row: Callable[[int], Row], serves: Callable[[str], bool]) -> str | None:
        """The block is due: a round's weights join the debts, and the largest debt of those who `serves` is paid.

        Where none of those who are owed does, the next rounds are looked at, too: who is passed over keeps its debt.
        Where nobody does at all, None, and the first round alone has counted: its link, once it has room, owes the swap.
        """
        first: tuple[int, dict[str, float]] | None = None
        for _ in range(PEEK):
            self._next_round(row)
            partner = max((p for p in self.debts if self.owes(p) and serves(p)), key=self.debts.__getitem__, default=None)
            if partner is not None:
                self.pay(partner)
                return partner
            first = first or (self.round, dict(self.debts))
        self.round, self.debts = first or (self.round, self.debts)
        return None

    def owes(self, partner: str) -> bool:
        """Whether the partner is to have a swap of this block."""
        return self.debts.get(partner, 0.0) > SMALL

    def pay(self, partner: str, swaps: float = 1.0) -> None:
        """So many swaps of this block begin; negative where they are owed."""
        self.debts[partner] = min(max(self.debts.get(partner, 0.0) - swaps, -DEBT), DEBT)

    def _next_round(self, row: Callable[[int], Row]) -> None:
        for partner, weight in row(self.round):
            self.pay(partner, -weight)
        self.round += 1
