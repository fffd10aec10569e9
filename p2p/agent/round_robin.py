"""Weighted round robin: whom each block asks, by the rows of its own rounds and by who has credit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Row = Sequence[tuple[str, float]]
"""Whom to ask in one round, with weights that sum to 1 (the self weight dropped); empty where nobody."""

PEEK = 8  # rounds that a block looks ahead for a partner with credit
DEBT = 2.0  # swaps that one partner may be owed of one block


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
    chosen: bool = False  # this round's row has been added to the debts, no partner had credit yet
    debts: dict[str, float] = field(default_factory=dict)

    def choose(self, row: Callable[[int], Row], serves: Callable[[str], bool]) -> str | None:
        """Each round adds its weights to the debts, the largest debt of who `serves` is paid; None where nobody does."""
        for peek in range(PEEK):
            if peek or not self.chosen:
                self._next_round(row)
            open_to = [p for p in self.debts if serves(p)]
            if open_to:
                partner = max(open_to, key=self.debts.__getitem__)
                self.debts[partner] -= 1
                self.chosen = False
                return partner
            if self.chosen and not peek:
                return None
            self.chosen = True
        return None

    def _next_round(self, row: Callable[[int], Row]) -> None:
        self.debts = {p: d for p, d in self.debts.items() if d > 1e-9}
        for partner, weight in row(self.round):
            self.debts[partner] = min(self.debts.get(partner, 0.0) + weight, DEBT)
        self.round += 1
