"""Staging: buffers are reused, and never while the transport still reads them."""

from __future__ import annotations

import pytest

from p2p.agent.staging import Staging


class Leaving:
    done = False


@pytest.mark.parametrize(("nbytes", "size"), [(0, 256), (1, 256), (256, 256), (257, 512), (4096, 4096), (4097, 8192)])
def test_sizes_are_powers_of_two(nbytes: int, size: int) -> None:
    assert Staging().take(nbytes).numel() == size


def test_what_was_given_back_is_taken_again() -> None:
    staging = Staging()
    buffer = staging.take(1000)
    staging.give(buffer)
    assert staging.take(900) is buffer
    assert staging.take(900) is not buffer


def test_what_is_on_its_way_is_not_taken_until_it_has_left() -> None:
    staging, sent = Staging(), Leaving()
    buffer = staging.take(1000)
    staging.give(buffer, sent)
    other = staging.take(1000)
    assert other is not buffer
    sent.done = True
    assert staging.take(1000) is buffer


def test_a_message_that_is_stuck_holds_nothing_else_back() -> None:
    staging, stuck = Staging(), Leaving()
    held = staging.take(1000)
    staging.give(held, stuck)
    seen = set()
    for _ in range(100):
        sent = Leaving()
        buffer = staging.take(1000)
        seen.add(id(buffer))
        staging.give(buffer, sent)
        sent.done = True
    assert len(seen) == 1 and id(held) not in seen


def test_what_has_left_already_is_free_at_once() -> None:
    staging, sent = Staging(), Leaving()
    sent.done = True
    buffer = staging.take(1)
    staging.give(buffer, sent)
    assert staging.take(1) is buffer


def test_sizes_that_are_no_longer_asked_for_make_room() -> None:
    staging = Staging()
    for size in (1024, 512, 256, 2048):
        buffers = [staging.take(size) for _ in range(4096 // size)]
        assert staging.nbytes == 4096
        for buffer in buffers:
            staging.give(buffer)
    assert id(staging.take(2048)) in map(id, buffers)


def test_what_is_out_is_never_taken_back() -> None:
    staging = Staging()
    small = [staging.take(256) for _ in range(4)]
    staging.give(small.pop())
    assert staging.take(512).numel() == 512
    assert staging.nbytes == 3 * 256 + 512
    for buffer in small:
        staging.give(buffer)
    assert staging.take(256) is small[-1]
