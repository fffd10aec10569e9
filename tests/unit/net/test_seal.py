"""Seals: only the two who agreed can make one, for these bytes alone; the tag is AEGIS-128L's of the published vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p.errors import WireError
from p2p.net.seal import Half, Seal

ONE, OTHER, STRANGER = Half(), Half(), Half()


def test_both_have_the_same_seal_and_a_third_one_has_another() -> None:
    mark = ONE.seal(OTHER.public).mark(b"head", b"payload")
    assert OTHER.seal(ONE.public).verify(mark, b"head", b"payload")
    assert not STRANGER.seal(ONE.public).verify(mark, b"head", b"payload")
    assert not STRANGER.seal(OTHER.public).verify(mark, b"head", b"payload")


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=200), st.data())
def test_one_bit_anywhere_breaks_it(head: bytes, payload: bytes, data: st.DataObject) -> None:
    seal = ONE.seal(OTHER.public)
    mark = seal.mark(head, memoryview(payload))
    assert seal.verify(mark, head, payload)
    parts = [mark, head, payload]
    i = data.draw(st.sampled_from([i for i, part in enumerate(parts) if part]))
    bit = data.draw(st.integers(0, 8 * len(parts[i]) - 1))
    flipped = bytearray(parts[i])
    flipped[bit // 8] ^= 1 << bit % 8
    parts[i] = bytes(flipped)
    assert not seal.verify(*parts)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 47, 49, 1000])
def test_a_mark_of_another_length_is_none(length: int) -> None:
    seal = ONE.seal(OTHER.public)
    assert not seal.verify((seal.mark(b"", b"x") * 30)[:length], b"", b"x")


def test_no_two_marks_are_alike() -> None:
    seal = ONE.seal(OTHER.public)
    assert len({seal.mark(b"", b"x") for _ in range(100)}) == 100


@pytest.mark.parametrize("public", [b"", bytes(31), bytes(33), bytes(32), b"\1" + bytes(31)])
def test_what_is_no_half_is_refused(public: bytes) -> None:
    """The last two are points of which anybody knows what comes of them."""
    with pytest.raises(WireError, match="no half of a key"):
        ONE.seal(public)


def test_the_tag_is_that_of_the_published_vector() -> None:
    """Draft-irtf-cfrg-aegis-aead, AEGIS-128L, test vector 2: no message, no data, a tag of 256 bits."""
    seal = Seal(bytes.fromhex("10010000000000000000000000000000"))
    tag = seal._tag(bytes.fromhex("10000200000000000000000000000000"), b"", b"")
    assert tag.hex() == "1360dc9db8ae42455f6e5b6a9d488ea4f2184c4e12120249335c4ee84bafe25d"
