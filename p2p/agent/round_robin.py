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
        `serves` gives the same answer for the same partner all the while.
        """
        self._next_round(row)
        partner = self._first_of(self._owed(), serves)
        if partner is None:
            partner = self._look_ahead(row, serves)
        if partner is not None:
            self.pay(partner)
        return partner

    def _look_ahead(self, row: Callable[[int], Row], serves: Callable[[str], bool]) -> str | None:
        """None of those who are owed serves: the round in which somebody else who does is owed a swap, within PEEK."""
        refused = set(self._owed())
        if all(partner in refused for round in range(self.round, self.round + PEEK - 1) for partner, _ in row(round)):
            return None
        before = self.round, dict(self.debts)
        for _ in range(PEEK - 1):
            self._next_round(row)
            partner = self._first_of([p for p in self._owed() if p not in refused], serves)
            if partner is not None:
                return partner
        self.round, self.debts = before
        return None

    def _owed(self) -> list[str]:
        return [partner for partner, debt in self.debts.items() if debt > SMALL]

    def _first_of(self, owed: list[str], serves: Callable[[str], bool]) -> str | None:
        """Of those who serve, who is owed most."""
        return max(filter(serves, owed), key=self.debts.__getitem__, default=None)

    def owes(self, partner: str) -> bool:
        """Whether the partner is to have a swap of this block."""
        return self.debts.get(partner, 0.0) > SMALL

    def pay(self, partner: str, swaps: float = 1.0) -> None:
        """So many swaps of this block begin; negative where they are owed."""
        self.debts[partner] = min(max(self.debts.get(partner, 0.0) - swaps, -DEBT), DEBT)

    def _next_round(self, row: Callable[[int], Row]) -> None:
        for partner, weight in row(self.round):
            self.debts[partner] = min(self.debts.get(partner, 0.0) + weight, DEBT)
        self.round += 1
