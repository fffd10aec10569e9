"""Faults strike when they are due, end when they should, and a schedule says which did."""

from __future__ import annotations

import asyncio
import random

import pytest

from p2p.sim.clock import run
from p2p.sim.faults import Corrupt, Cut, Disconnect, Fault, Join, Kill, Leave, Link, Schedule, Slow, Stall, draw


class Book:
    """A world that writes down what is done to it, with the time; node 9 does not exist."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str]] = []

    def note(self, text: str, exists: bool = True) -> bool:
        self.lines.append((asyncio.get_running_loop().time(), text))
        return exists

    def kill(self, node: int) -> bool:
        return self.note(f"kill {node}", node != 9)

    def stall(self, node: int) -> bool:
        return self.note(f"stall {node}", node != 9)

    def resume(self, node: int) -> bool:
        return self.note(f"resume {node}")

    def cut(self, sites: tuple[str, ...]) -> bool:
        return self.note(f"cut {sites}")

    def heal(self, sites: tuple[str, ...]) -> bool:
        return self.note(f"heal {sites}")

    def disconnect(self, node: int) -> bool:
        return self.note(f"disconnect {node}")

    def slow(self, link: Link, factor: float) -> bool:
        return self.note(f"slow {link} {factor}")

    def corrupt(self, link: Link, share: float) -> bool:
        return self.note(f"corrupt {link} {share}")

    def join(self) -> bool:
        return self.note("join")

    def leave(self, node: int) -> bool:
        return self.note(f"leave {node}")


def play(faults: list[Fault], until: float = 100.0) -> tuple[Book, Schedule, list[str]]:
    book, words = Book(), list[str]()
    schedule = Schedule(faults, book, words.append)

    async def main() -> None:
        schedule.arm()
        await asyncio.sleep(until)

    run(main())
    return book, schedule, words


def test_every_fault_strikes_in_time_and_passes_in_time() -> None:
    faults: list[Fault] = [
        Kill(1, at=5),
        Stall(2, at=1, for_=3),
        Cut(("eu",), at=2, for_=4),
        Slow(("eu", "us"), 3.0),
        Corrupt(4, 0.1, at=7),
        Disconnect(6, at=7.5),
        Join(at=8),
        Leave(3, at=9),
    ]
    book, schedule, _ = play(faults)
    assert book.lines == [
        (0.0, "slow ('eu', 'us') 3.0"),
        (1.0, "stall 2"),
        (2.0, "cut ('eu',)"),
        (4.0, "resume 2"),
        (5.0, "kill 1"),
        (6.0, "heal ('eu',)"),
        (7.0, "corrupt 4 0.1"),
        (7.5, "disconnect 6"),
        (8.0, "join"),
        (9.0, "leave 3"),
    ]
    schedule.assert_fired()


def test_a_fault_that_is_not_due_or_found_nothing_has_not_fired() -> None:
    _, schedule, words = play([Kill(1, at=1), Kill(9, at=2), Kill(2, at=1000)])
    with pytest.raises(AssertionError, match=r"2 of 3 faults did not fire.*node=9.*node=2"):
        schedule.assert_fired()
    assert words == ["Kill(node=1, at=1)", "Kill(node=9, at=2) found nothing to act upon"]


def test_what_did_not_strike_does_not_end() -> None:
    book, _, _ = play([Stall(9, at=1, for_=1)])
    assert book.lines == [(1.0, "stall 9")]


@pytest.mark.parametrize("seed", range(50))
def test_a_drawn_schedule_leaves_most_nodes_alive_and_ends_in_time(seed: int) -> None:
    faults = draw(random.Random(seed), 12, ["eu", "us"], 60.0)
    assert faults == draw(random.Random(seed), 12, ["eu", "us"], 60.0)
    gone = [fault.node for fault in faults if isinstance(fault, Kill | Leave)]
    assert len(gone) <= 4
    assert not {fault.node for fault in faults if isinstance(fault, Stall)} & set(gone)
    assert all(fault.at + getattr(fault, "for_", 0.0) <= 45.0 for fault in faults)
