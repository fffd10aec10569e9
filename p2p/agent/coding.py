"""Which codec a link's swaps take, and what the next message of a block needs to know of the last one.

A rule is `auto`, the name of a codec, or a codec per pair of sites: `auto,eu:us=low-rank:1`; and any of these by steps:
`int4/int8@1000` is coarse at first, finer from step 1000 on. `auto` takes the mildest codec with which the link carries the
whole state within STALENESS steps: none on a fat link. `parameters:int8` leaves the optimizer's moments out. Whoever receives
goes by what the header says.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from optim import Kind
from optim.codec import BFLOAT16, RAW, Codec, Form, Projection, fits, make
from p2p.agent.links import Link
from p2p.agent.replicas import FOUNDING, Heard, Told
from p2p.config import ExchangeConfig
from p2p.errors import ConfigError
from p2p.state.layout import Block
from topology import SpecError

AUTO = "auto"
ONLY = "parameters:"
"""Before a name: what optimizers keep of each parameter does not cross the link."""
MOMENTS = frozenset({Kind.SIGNED, Kind.MOMENTS})
LADDER = tuple(map(make, ("raw", "bfloat16", "int8", "int4")))
"""What `auto` chooses from, mildest first. What mixes a part of the values alone learns unlike data much more slowly."""
STALENESS = 3.0
"""Steps within which a link should carry the whole state."""
MILDER = 0.6
"""A milder codec is gone back to when the link would carry it within this share of the time: no flapping."""
REVIEW = 0.5
"""Seconds between two looks at a link."""

Steps = tuple[tuple[int, str], ...]
"""Which name holds from which step on, in order; the first from 0."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A codec's name, or `auto`, by steps, for all links; others for those between two sites."""

    everywhere: Steps = ((0, RAW.name),)
    between: dict[frozenset[str], Steps] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Of `auto,eu:us=int4/int8@1000`. Raises ConfigError."""
        everywhere, between = cls().everywhere, dict[frozenset[str], Steps]()
        for part in filter(None, text.replace(" ", "").split(",")):
            sites, equals, names = part.rpartition("=")
            pair = frozenset(sites.split(":"))
            if equals and len(sites.split(":")) != 2:
                raise ConfigError(f"codec {part!r}: SITE:SITE=CODEC is expected")
            if equals:
                between[pair] = _steps(names)
            else:
                everywhere = _steps(names)
        return cls(everywhere, between)

    def name(self, here: str, there: str, step: int = 0) -> str:
        """For a link from one site to another, at this step."""
        return _at(self.between.get(frozenset((here, there)), self.everywhere), step)

    def changes(self, step: int) -> float:
        """The first step after this one at which any name changes."""
        steps = (begin for steps in (self.everywhere, *self.between.values()) for begin, _ in steps)
        return min((begin for begin in steps if begin > step), default=math.inf)


def _steps(text: str) -> Steps:
    """Of `int4/int8@1000`."""
    first, *later = text.split("/")
    found = [(0, first)]
    for part in later:
        name, _, begin = part.partition("@")
        if not (begin.isascii() and begin.isdecimal() and len(begin) < 16 and int(begin) > found[-1][0]):
            raise ConfigError(f"codec {text[:80]!r}: CODEC/CODEC@STEP/... with steps that increase is expected")
        found.append((int(begin), name))
    for _, name in found:
        _check(name)
    return tuple(found)


def _at(steps: Steps, step: int) -> str:
    return next(name for begin, name in reversed(steps) if step >= begin)


def _check(name: str) -> None:
    try:
        if name.removeprefix(ONLY) != AUTO:
            make(name.removeprefix(ONLY))
    except SpecError as error:
        raise ConfigError(str(error)) from None


@dataclass(slots=True)
class _Choice:
    codec: Codec
    auto: bool
    only: bool  # parameters
    looked: float = 0.0


class Coding:
    """One node's links. `site` is the own one."""

    def __init__(self, blocks: Sequence[Block], config: ExchangeConfig) -> None:
        """Raises ConfigError where `config.codec` is no rule."""
        self._blocks = blocks
        self._rule = Rule.parse(config.codec)
        self._step = 0
        self._changes = self._rule.changes(0)
        self._here, self._sites = "", dict[str, str]()
        self._choices: dict[str, _Choice] = {}
        self._sizes: dict[str, tuple[int, ...]] = {}
        self._shown: dict[str, dict[int, tuple[str, Tensor]]] = {}  # by partner and block: codec, piece of the last answer
        self.told = Told(config.replicas // 2)
        self.heard = Heard(config.replicas // 2)

    def seat(self, here: str, sites: dict[str, str]) -> None:
        """The view changed: these are the members' sites."""
        self._here, self._sites = here, sites
        self._choices = {partner: self._choice(partner, site) for partner, site in sites.items()}
        self.keep(sites)

    def keep(self, members: Container[str]) -> None:
        """Forget those who are gone."""
        self._shown = {partner: shown for partner, shown in self._shown.items() if partner in members}
        self.told.keep(members)
        self.heard.store.keep(members)

    def stepped(self, step: int) -> None:
        """The own step, by which rules go."""
        self._step = step
        if step >= self._changes:
            self._changes = self._rule.changes(step)
            self.seat(self._here, self._sites)

    def wanted(self, partner: str) -> Codec:
        """Of the link."""
        choice = self._choices.get(partner)
        return choice.codec if choice is not None else RAW

    def free(self, partner: str, index: int) -> bool:
        """Whether a block may go to this partner now: it crosses the link, and it is known what the partner holds of it."""
        choice = self._choices.get(partner)
        crosses = choice is None or not choice.only or self._blocks[index].kind not in MOMENTS
        return crosses and self.told.free(partner, index)

    def of(self, partner: str, blocks: Sequence[Block]) -> tuple[Codec, list[Tensor], bool]:
        """For blocks of one kind: the codec, what the pieces are changes from, and whether the partner shall remember them.

        The link's codec where the values survive it, else the mildest one that spares them.
        """
        codec = suited(self.wanted(partner), blocks[0])
        if codec.form is not Form.CHANGES:
            return codec, [], False
        bases = self.told.bases(partner, blocks)
        return (codec if bases else FOUNDING), bases, True

    def nbytes(self, partner: str, index: int) -> int:
        """What a block takes on this link, one way."""
        codec = self.wanted(partner)
        if codec.form is Form.CHANGES and self.told.store.get(partner, index) is None:
            codec = FOUNDING
        return self._table(codec)[index]

    def review(self, partner: str, link: Link, pace: float, now: float) -> None:
        """Choose anew, if that is `auto`; `pace` is the neighbourhood's seconds per step."""
        choice = self._choices.get(partner)
        if choice is None or not choice.auto or now < choice.looked + REVIEW or not link.rates or pace <= 0:
            return
        choice.looked = now
        at = LADDER.index(choice.codec)
        if at and self._seconds(LADDER[at - 1], choice, link) <= MILDER * STALENESS * pace:
            choice.codec = LADDER[at - 1]
        while self._seconds(choice.codec, choice, link) > STALENESS * pace and choice.codec is not LADDER[-1]:
            choice.codec = LADDER[LADDER.index(choice.codec) + 1]

    def begin(self, partner: str, exchange: int, codec: Codec, pieces: Iterable[tuple[int, Tensor]]) -> None:
        """Write the heads of pieces that are about to be encoded, where the codec has them."""
        if isinstance(codec, Projection):
            for index, piece in pieces:
                name, last = self._shown.get(partner, {}).get(index, ("", None))
                seed = (exchange * 0x9E3779B97F4A7C15 + index) & (1 << 63) - 1
                codec.begin(piece, self._blocks[index].elements, seed, last if name == codec.name else None)

    def answered(self, partner: str, index: int, codec: Codec, piece: Tensor, share: float) -> None:
        """What the partner's answer showed of a block; this node takes a `share` of it."""
        self.told.mixed(partner, self._blocks[index], codec, piece, share)
        if isinstance(codec, Projection) and codec.warm:
            self._shown.setdefault(partner, {})[index] = (codec.name, piece.clone())

    def _choice(self, partner: str, there: str) -> _Choice:
        name = self._rule.name(self._here, there, self._step)
        before, only = self._choices.get(partner), name.startswith(ONLY)
        if name.removeprefix(ONLY) == AUTO:
            return (
                before if before is not None and (before.auto, before.only) == (True, only) else _Choice(LADDER[0], True, only)
            )
        return _Choice(make(name.removeprefix(ONLY)), False, only)

    def _seconds(self, codec: Codec, choice: _Choice, link: Link) -> float:
        """In which the link carries everything that crosses it."""
        sizes = zip(self._table(codec), self._blocks, strict=True)
        return sum(size for size, block in sizes if not choice.only or block.kind not in MOMENTS) / link.bandwidth

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


class Pushing:
    """The codec of pushes, which carry values to all alike, by steps."""

    def __init__(self, rule: str) -> None:
        """Raises ConfigError for a rule that swaps alone can take."""
        parsed = Rule.parse(rule)
        names = [name for _, name in parsed.everywhere]
        special = parsed.between or AUTO in names or any(name.startswith(ONLY) for name in names)
        if special or any(make(name).form is not Form.VALUES for name in names):
            raise ConfigError(f"codec {rule}: pushes take codecs for values: raw, float32, float16, bfloat16 or int8")
        self._steps = parsed.everywhere

    def of(self, step: int, block: Block) -> Codec:
        """What spares the block's values, and is nearest to this step's."""
        return suited(make(_at(self._steps, step)), block)
