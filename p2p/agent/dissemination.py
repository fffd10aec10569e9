"""What is still to be told to others: each piece of news rides on a bounded number of messages, the freshest first."""

from __future__ import annotations

import math
from collections import defaultdict

from p2p.config import MembershipConfig
from p2p.net.messages import Accusation, Figures, News, Record

NOTHING = News()
LAST = 1 << 16
"""A tier above every retransmit limit."""

Item = Record | Accusation | Figures


def retransmit_limit(config: MembershipConfig, live: int) -> int:
    """On how many messages a piece of news rides, in a swarm of `live` nodes."""
    return config.retransmit_multiplier * math.ceil(math.log10(live + 1))


class Dissemination:
    """A queue with one item per subject, a newer one replacing the older; least transmitted goes first."""

    def __init__(self, config: MembershipConfig) -> None:
        self._config = config
        self._tiers: defaultdict[int, dict[str, Item]] = defaultdict(dict)  # transmissions -> subject -> item
        self._tier_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._tier_of)

    def push(self, subject: str, item: Item, *, once: bool = False) -> None:
        """From now on this is what is told about `subject`; `once`: on one message only, when there is nothing fresher."""
        self.drop(subject)
        self._place(subject, item, LAST if once else 0)

    def drop(self, subject: str) -> None:
        """Nothing more to tell about `subject`."""
        tier = self._tier_of.pop(subject, None)
        if tier is not None:
            del self._tiers[tier][subject]

    def take(self, live: int) -> list[Item]:
        """What rides on one message now."""
        if not self._tier_of:
            return []
        limit, taken = retransmit_limit(self._config, live), self._freshest()
        for tier, subject, item in taken:
            self.drop(subject)
            if tier + 1 < limit:
                self._place(subject, item, tier + 1)
        return [item for _, _, item in taken]

    def _place(self, subject: str, item: Item, tier: int) -> None:
        self._tiers[tier][subject] = item
        self._tier_of[subject] = tier

    def _freshest(self) -> list[tuple[int, str, Item]]:
        found: list[tuple[int, str, Item]] = []
        for tier in sorted(self._tiers):
            for subject, item in self._tiers[tier].items():
                if len(found) == self._config.piggyback:
                    return found
                found.append((tier, subject, item))
        return found
