"""Which codec a link's swaps take, and what the next message of a block needs to know of the last one.

A rule is `auto`, the name of a codec, or a codec per pair of sites: `auto,eu:us=low-rank:1`. `auto` takes the mildest codec
with which the link carries the whole state within STALENESS steps: none on a fat link.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from optim.codec import BFLOAT16, RAW, Codec, Form, Projection, fits, make
from p2p.agent.links import Link
from p2p.errors import ConfigError
from p2p.state.layout import Block
from topology import SpecError

AUTO = "auto"
LADDER = tuple(map(make, ("raw", "bfloat16", "int8", "random-k:10", "low-rank:1")))
"""What `auto` chooses from, mildest first."""
STALENESS = 3.0
"""Steps within which a link should carry the whole state."""
MILDER = 0.6
"""A milder codec is gone back to when the link would carry it within this share of the time: no flapping."""
REVIEW = 0.5
"""Seconds between two looks at a link."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A codec's name, or `auto`, for all links; others for those between two sites."""

    everywhere: str = RAW.name
    between: dict[frozenset[str], str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Of `auto,eu:us=low-rank:1`. Raises ConfigError."""
        everywhere, between = RAW.name, dict[frozenset[str], str]()
        for part in filter(None, text.replace(" ", "").split(",")):
            sites, equals, name = part.rpartition("=")
            pair = frozenset(sites.split(":"))
            if equals and len(sites.split(":")) != 2:
                raise ConfigError(f"codec {part!r}: SITE:SITE=CODEC is expected")
            _check(name)
            if equals:
                between[pair] = name
            else:
                everywhere = name
        return cls(everywhere, between)

    def name(self, here: str, there: str) -> str:
        """For a link from one site to another."""
        return self.between.get(frozenset((here, there)), self.everywhere)


def _check(name: str) -> None:
    if name == AUTO:
        return
    try:
        codec = make(name)
    except SpecError as error:
        raise ConfigError(str(error)) from None
    if codec.form is Form.CHANGES:
        raise ConfigError(
            f"codec {name}: it is for differences; swaps take values or parts ({', '.join(c.name for c in LADDER)})"
        )


@dataclass(slots=True)
class _Choice:
    codec: Codec
    auto: bool
    looked: float = 0.0


class Coding:
    """One node's links. `site` is the own one."""

    def __init__(self, blocks: Sequence[Block], rule: Rule) -> None:
        self._blocks = blocks
        self._rule = rule
        self._choices: dict[str, _Choice] = {}
        self._sizes: dict[str, tuple[int, ...]] = {}
        self._shown: dict[str, dict[int, tuple[str, Tensor]]] = {}  # by partner and block: codec, piece of the last answer

    def seat(self, here: str, sites: dict[str, str]) -> None:
        """The view changed: these are the members' sites."""
        self._choices = {partner: self._choice(partner, here, site) for partner, site in sites.items()}
        self.keep(sites)

    def keep(self, members: Container[str]) -> None:
        self._shown = {partner: shown for partner, shown in self._shown.items() if partner in members}

    def wanted(self, partner: str) -> Codec:
        """Of the link."""
        choice = self._choices.get(partner)
        return choice.codec if choice is not None else RAW

    def of(self, partner: str, block: Block) -> Codec:
        """The link's codec where the block's values survive it; else the mildest one that spares them."""
        return suited(self.wanted(partner), block)

    def nbytes(self, partner: str, index: int) -> int:
        """What a block takes on this link, one way."""
        return self._table(self.wanted(partner))[index]

    def review(self, partner: str, link: Link, pace: float, now: float) -> None:
        """Choose anew, if that is `auto`; `pace` is the neighbourhood's seconds per step."""
        choice = self._choices.get(partner)
        if choice is None or not choice.auto or now < choice.looked + REVIEW or not link.rates or pace <= 0:
            return
        choice.looked = now
        at = LADDER.index(choice.codec)
        if at and self._seconds(LADDER[at - 1], link) <= MILDER * STALENESS * pace:
            choice.codec = LADDER[at - 1]
        while self._seconds(choice.codec, link) > STALENESS * pace and choice.codec is not LADDER[-1]:
            choice.codec = LADDER[LADDER.index(choice.codec) + 1]

    def begin(self, partner: str, exchange: int, block: Block, codec: Codec, piece: Tensor) -> None:
        """Write the head of a piece that is about to be encoded, where the codec has one."""
        if isinstance(codec, Projection):
            name, last = self._shown.get(partner, {}).get(block.index, ("", None))
            seed = (exchange * 0x9E3779B97F4A7C15 + block.index) & (1 << 63) - 1
            codec.begin(piece, block.elements, seed, last if name == codec.name else None)

    def answered(self, partner: str, index: int, codec: Codec, piece: Tensor) -> None:
        """What the partner's answer showed of a block."""
        if isinstance(codec, Projection) and codec.warm:
            self._shown.setdefault(partner, {})[index] = (codec.name, piece.clone())

    def _choice(self, partner: str, here: str, there: str) -> _Choice:
        name = self._rule.name(here, there)
        before = self._choices.get(partner)
        if name == AUTO:
            return before if before is not None and before.auto else _Choice(LADDER[0], auto=True)
        return _Choice(make(name), auto=False)

    def _seconds(self, codec: Codec, link: Link) -> float:
        """In which the link carries everything."""
        return sum(self._table(codec)) / link.bandwidth

    def _table(self, codec: Codec) -> tuple[int, ...]:
        if codec.name not in self._sizes:
            codecs = ((suited(codec, block), block) for block in self._blocks)
            self._sizes[codec.name] = tuple(it.nbytes(block.elements, block.dtype) for it, block in codecs)
        return self._sizes[codec.name]


def suited(wanted: Codec, block: Block) -> Codec:
    """The wanted codec where the block's values survive it; else the mildest one that spares them."""
    if fits(wanted, block.kind, block.dtype):
        return wanted
    return BFLOAT16 if fits(BFLOAT16, block.kind, block.dtype) else RAW


def one_codec(rule: str) -> Codec:
    """Of a rule for pushes, which carry values to all alike. Raises ConfigError for one that swaps alone can take."""
    parsed = Rule.parse(rule)
    if parsed.between or parsed.everywhere == AUTO or make(parsed.everywhere).form is not Form.VALUES:
        raise ConfigError(f"codec {rule}: pushes take one codec for values: raw, float32, float16, bfloat16 or int8")
    return make(parsed.everywhere)
