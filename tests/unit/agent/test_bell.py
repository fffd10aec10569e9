"""The bell: steps are told in order, and short ones wake the loop once for several."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from p2p.agent.bell import Bell
from p2p.errors import ClosedError


class Loop(asyncio.SelectorEventLoop):
    """Counts what wakes it."""

    wakes = 0

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object, **rest: object) -> asyncio.Handle:
        self.wakes += 1
        return super().call_soon_threadsafe(callback, *args)


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.mark.parametrize(
    ("patience", "times", "wakes"),
    [
        (0.0, (0.0, 0.002, 0.004), 3),
        (0.010, (0.0, 0.002, 0.004, 0.010, 0.012), 2),
        (0.010, (5.0, 5.020, 5.040), 3),
    ],
)
def test_short_steps_wake_the_loop_once_for_several(loop: Loop, patience: float, times: tuple[float, ...], wakes: int) -> None:
    heard: list[tuple[int, float]] = []
    bell = Bell(loop, lambda step, now: heard.append((step, now)))
    for step, now in enumerate(times):
        bell.ring(step, now, patience)
    assert loop.wakes == wakes
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert heard == list(enumerate(times))


def test_who_ticks_anyway_hears_of_what_did_not_wake_it(loop: Loop) -> None:
    heard: list[int] = []
    bell = Bell(loop, lambda step, now: heard.append(step))
    bell.ring(1, 0.0, 0.01)
    bell.answer()
    bell.ring(2, 0.001, 0.01)
    assert heard == [1]
    bell.answer()
    bell.answer()
    assert heard == [1, 2]


@pytest.mark.parametrize("now", [0.001, 1.0])
def test_a_loop_that_has_ended_is_told_at_once(loop: Loop, now: float) -> None:
    bell = Bell(loop, lambda step, now: None)
    bell.ring(1, 0.0, 0.01)
    loop.close()
    with pytest.raises(ClosedError, match="left the swarm"):
        bell.ring(2, now, 0.01)
