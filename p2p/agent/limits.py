"""What the user has set: bytes a second out of this node, into it, and between its site and another."""

from __future__ import annotations

import math

from p2p.agent.pacer import Bucket
from p2p.config import LimitConfig


class Limits:
    """One node's buckets. A limit between sites is for all nodes of both: each one of a site has its share.

    Swaps take as many bytes each way, and what a node doesn't answer its partners don't send more of: the downlink is kept by
    what leaves.
    """

    def __init__(self, config: LimitConfig) -> None:
        self.downlink = Bucket(config.downlink)
        self._uplink = Bucket(config.uplink)
        self._pairs = {frozenset(pair): rate for *pair, rate in config.wan}
        self._wan: dict[str, Bucket] = {}  # by the other site
        self.active = min(config.uplink, config.downlink, *self._pairs.values(), math.inf) < math.inf

    def seat(self, here: str, sites: list[str]) -> None:
        """The view changed: the own site, and all members'."""
        share = max(sites.count(here), 1)
        for there in set(sites) - {here}:
            rate = self._pairs.get(frozenset((here, there)))
            if rate is not None:
                self._wan.setdefault(there, Bucket(rate)).rate = rate / share

    def to(self, site: str) -> tuple[Bucket, ...]:
        """What a message to a node of this site counts against."""
        wan = self._wan.get(site)
        return (self._uplink, self.downlink) if wan is None else (self._uplink, self.downlink, wan)
