"""The set of finished chunks: a union in any order, whole runs become a floor."""

from hypothesis import given
from hypothesis import strategies as st

from p2p.agent.finished import Finished

CHUNKS = st.sets(st.integers(0, 90))


def of(chunks: set[int]) -> Finished:
    finished = Finished()
    for chunk in sorted(chunks, reverse=True):
        assert finished.add(chunk)
    return finished


def members(finished: Finished) -> set[int]:
    return {chunk for chunk in range(200) if chunk in finished}


@given(CHUNKS, CHUNKS)
def test_merging_is_a_union(one: set[int], other: set[int]) -> None:
    merged = of(one)
    assert merged.merge(of(other)) is bool(other - one)
    assert members(merged) == one | other
    assert merged == of(one | other)


@given(CHUNKS, st.integers(0, 120))
def test_counting_below(chunks: set[int], end: int) -> None:
    assert of(chunks).below(end) == len({chunk for chunk in chunks if chunk < end})


@given(CHUNKS)
def test_it_travels_as_floor_and_bitmap(chunks: set[int]) -> None:
    finished = of(chunks)
    assert Finished(finished.floor, finished.bitmap) == finished
    assert len(finished.bitmap) <= 12


def test_literal() -> None:
    finished = of({0, 1, 2, 5, 12})
    assert (finished.floor, finished.bitmap) == (3, bytes([0b00000100, 0b00000010]))
    assert not finished.add(1)
    assert finished.add(3)
    assert finished.add(4)
    assert finished.floor == 6
    assert Finished(4, bytes([0b1011])) == Finished(6, bytes([0b10]))  # what is whole already is taken into the floor
