"""Which codec a link takes: rules by site, and `auto` by what the link carries."""

from __future__ import annotations

import pytest
import torch

from optim import Kind
from optim.codec import RAW, Projection, make
from p2p.agent.coding import LADDER, REVIEW, Coding, Pushing, Rule
from p2p.agent.links import Link
from p2p.config import ExchangeConfig
from p2p.errors import ConfigError
from p2p.state.layout import Block, lay_out
from p2p.state.schema import Entry

MODEL = 4 * 2**20
"""Bytes: 16 blocks."""


def blocks() -> tuple[Block, ...]:
    return lay_out([Entry("w", Kind.PARAMETER, (MODEL // 4,), torch.float32, "")], 256 * 1024)[1]


def coding(rule: str) -> Coding:
    made = Coding(blocks(), ExchangeConfig(codec=rule))
    made.seat("eu", {"a": "eu", "b": "us", "c": ""})
    return made


def link(bandwidth: float) -> Link:
    """One that has shown this bandwidth, in bytes a second."""
    found = Link(ExchangeConfig())
    found.leave(1, int(bandwidth), 0.0)
    found.receipt(1, 1.0)
    return found


@pytest.mark.parametrize(
    ("rule", "inside", "across", "elsewhere"),
    [
        ("raw", "raw", "raw", "raw"),
        ("int8", "int8", "int8", "int8"),
        ("eu:us=low-rank:1", "raw", "low-rank:1", "raw"),
        ("bfloat16, us:eu=random-k:100", "bfloat16", "random-k:100", "bfloat16"),
        ("auto,us:us=int8", "raw", "raw", "raw"),  # nothing measured yet
    ],
)  # fmt: skip
def test_a_rule_goes_by_sites(rule: str, inside: str, across: str, elsewhere: str) -> None:
    made = coding(rule)
    assert [made.wanted(partner).name for partner in ("a", "b", "c")] == [inside, across, elsewhere]


NO_RULES = ["int9", "eu=int8", "a:b:c=int8", "eu:us=", "top-k:1", "random-k:1", "int8/int4", "int8@5", "int4/int8@0"]
NO_RULES += ["int4/int8@9/raw@9", "int4/int8@-1", "int4/@7", "parameters:", "parameters:parameters:int8"]


@pytest.mark.parametrize("rule", NO_RULES)
def test_what_is_no_rule_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match="codec"):
        Rule.parse(rule)


@pytest.mark.parametrize("rule", ["auto", "random-k:100", "int8,eu:us=int8", "int8/sign@9", "parameters:int8"])
def test_pushes_take_codecs_for_values(rule: str) -> None:
    with pytest.raises(ConfigError, match="pushes"):
        Pushing(rule)


def test_pushes_go_by_the_step() -> None:
    made = Pushing("int8/bfloat16@10")
    assert [made.of(step, blocks()[0]).name for step in (0, 9, 10, 99)] == ["int8", "int8", "bfloat16", "bfloat16"]


def test_a_rule_goes_by_steps() -> None:
    made = coding("int4/int8@10,eu:us=auto/low-rank:1@20")
    names = []
    for step in (0, 9, 10, 19, 20, 500):
        made.stepped(step)
        names.append((made.wanted("c").name, made.wanted("b").name))
    assert names == [("int4", "raw")] * 2 + [("int8", "raw")] * 2 + [("int8", "low-rank:1")] * 2


@pytest.mark.parametrize(
    ("bandwidth", "expected"),
    [
        (1e9, "raw"),
        (14e6, "raw"),
        (13e6, "bfloat16"),
        (5e6, "int8"),
        (2e6, "int4"),
        (2e5, "int4"),
        (1e3, "int4"),
    ],
)
def test_auto_takes_the_mildest_that_carries_everything_in_three_steps(bandwidth: float, expected: str) -> None:
    made = coding("auto")
    made.review("b", link(bandwidth), 0.1, 10.0)
    assert made.wanted("b").name == expected
    assert made.wanted("a") is RAW, "each link by itself"


def test_moments_stay_where_parameters_alone_cross() -> None:
    entries = [Entry(name, kind, (MODEL // 4,), torch.float32, "") for name, kind in
               (("w", Kind.PARAMETER), ("m", Kind.SIGNED), ("b", Kind.BUFFER))]  # fmt: skip
    grid = lay_out(entries, 256 * 1024)[1]
    made = Coding(grid, ExchangeConfig(codec="auto,eu:us=parameters:auto"))
    made.seat("eu", {"a": "eu", "b": "us"})
    crossing = {partner: {block.kind for block in grid if made.free(partner, block.index)} for partner in "ab"}
    assert crossing["a"] == {Kind.PARAMETER, Kind.SIGNED, Kind.BUFFER}
    assert crossing["b"] == {Kind.PARAMETER, Kind.BUFFER}
    for partner in "ab":
        made.review(partner, link(30e6), 0.1, 10.0)
    assert [made.wanted(partner).name for partner in "ab"] == ["bfloat16", "raw"], "12 MB and 8 MB in 0.3 s"


def test_auto_goes_back_a_rung_at_a_time_and_only_when_there_is_room_to_spare() -> None:
    made = coding("auto")
    made.review("b", link(5e6), 0.1, 10.0)
    made.review("b", link(1e9), 0.1, 10.0 + REVIEW / 2)
    assert made.wanted("b").name == "int8", "not so soon"
    made.review("b", link(8e6), 0.1, 11.0)
    assert made.wanted("b").name == "int8", "bfloat16 would just fit"
    names = []
    for now in (12.0, 13.0, 14.0):
        made.review("b", link(1e9), 0.1, now)
        names.append(made.wanted("b").name)
    assert names == ["bfloat16", "raw", "raw"]


def test_a_link_that_drops_to_a_tenth_has_its_codec_at_the_next_look() -> None:
    made = coding("auto")
    made.review("b", link(2e7), 0.1, 10.0)
    made.review("b", link(2e6), 0.1, 10.0 + REVIEW)
    assert (made.wanted("b").name, LADDER[0].name) == ("int4", "raw")


def test_a_new_view_keeps_what_was_found_out() -> None:
    made = coding("auto")
    made.review("b", link(2e6), 0.1, 10.0)
    made.seat("eu", {"b": "us"})
    assert (made.wanted("b").name, made.wanted("a")) == ("int4", RAW)


def test_the_head_of_a_piece_follows_the_last_answer_of_that_block_and_codec() -> None:
    made, codec, block = coding("low-rank:1"), make("low-rank:1"), blocks()[0]
    assert isinstance(codec, Projection)
    size = codec.nbytes(block.elements, block.dtype)
    first, second, answer = (torch.zeros(size, dtype=torch.uint8) for _ in range(3))
    made.begin("b", 7, codec, [(0, first)])
    codec.follow(first, answer, block.elements)
    difference = torch.outer(torch.arange(256.0), torch.arange(256.0)).view(-1)
    codec.encode(difference, answer)
    made.answered("b", 0, codec, answer, 1.0)
    made.begin("b", 8, codec, [(0, second)])
    shown = second[4 : 4 + 1024].view(torch.float32)
    torch.testing.assert_close(shown.abs(), torch.arange(256.0) / torch.arange(256.0).norm())
    made.keep(())
    made.begin("b", 7, codec, [(0, second)])
    assert torch.equal(first, second), "forgotten"
