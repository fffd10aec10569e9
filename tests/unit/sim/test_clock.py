"""Virtual time: order, jumps, deadlock, and processes that stop, resume and die."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

from p2p.sim.clock import COMPACT_FROM, Deadlock, Livelock, Process, VirtualLoop, run


def loop() -> VirtualLoop:
    running = asyncio.get_running_loop()
    assert isinstance(running, VirtualLoop)
    return running


def test_an_hour_takes_no_time() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        return loop().time()

    began = time.perf_counter()
    assert run(main()) == 3600.0
    assert time.perf_counter() - began < 1.0


def test_timers_run_by_time_and_then_in_the_order_in_which_they_were_set() -> None:
    async def main() -> list[tuple[float, str]]:
        ran: list[tuple[float, str]] = []
        for delay, name in [(2.0, "d"), (1.0, "b"), (1.0, "c"), (0.0, "a"), (2.0, "e")]:
            loop().call_later(delay, lambda name=name: ran.append((loop().time(), name)))
        await asyncio.sleep(3)
        return ran

    assert run(main()) == [(0.0, "a"), (1.0, "b"), (1.0, "c"), (2.0, "d"), (2.0, "e")]


def test_a_timer_in_the_past_runs_now() -> None:
    async def main() -> float:
        await asyncio.sleep(5)
        done = loop().create_future()
        loop().call_at(1.0, lambda: done.set_result(loop().time()))
        return float(await done)

    assert run(main()) == 5.0


def test_timeouts_and_cancellation_are_asyncio_s() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await loop().create_future()
        return loop().time()

    assert run(main()) == 7.0


def test_waiting_for_what_never_comes_is_a_deadlock_that_names_the_waiter() -> None:
    async def main() -> None:
        await loop().create_future()

    with pytest.raises(Deadlock, match=r"at 0 s nothing is ready .*\.main"):
        run(main())


def test_waking_oneself_for_ever_is_a_livelock_that_names_the_culprit() -> None:
    async def main() -> None:
        def insomniac() -> None:
            loop().call_at(loop().time() - 1, insomniac)

        await asyncio.sleep(3)
        insomniac()
        await asyncio.sleep(1)

    with pytest.raises(Livelock, match=r"time stands still at 3 s; .*insomniac"):
        run(main())


def test_a_cancelled_timer_neither_runs_nor_moves_the_time() -> None:
    async def main() -> float:
        loop().call_later(100, pytest.fail, "cancelled").cancel()
        await asyncio.sleep(1)
        return loop().time()

    assert run(main()) == 1.0


def test_many_cancelled_timers_are_swept_out() -> None:
    async def main() -> int:
        for _ in range(20 * COMPACT_FROM):
            loop().call_later(100, pytest.fail, "cancelled").cancel()
        return len(loop()._timers)

    assert run(main()) <= COMPACT_FROM + 1


def test_cancelling_a_timer_that_ran_does_not_upset_the_sweep() -> None:
    async def main() -> None:
        timers = [loop().call_later(1, int) for _ in range(2 * COMPACT_FROM)]
        await asyncio.sleep(2)
        for timer in timers:
            timer.cancel()
        assert loop()._cancelled == 0

    run(main())


def test_callbacks_from_another_thread_run() -> None:
    async def main() -> int:
        ran: list[int] = []
        thread = threading.Thread(target=loop().call_soon_threadsafe, args=(ran.append, 7))
        thread.start()
        thread.join()
        await asyncio.sleep(0)
        return ran[0]

    assert run(main()) == 7


async def tick(seen: list[float], period: float = 1.0) -> None:
    while True:
        await asyncio.sleep(period)
        seen.append(loop().time())


def test_a_stopped_process_runs_what_fell_due_when_it_resumes() -> None:
    async def main() -> tuple[list[float], list[float], float]:
        stopped, other = Process(loop(), "a"), Process(loop(), "b")
        seen: list[float] = []
        seen_other: list[float] = []
        stopped.spawn(tick(seen))
        other.spawn(tick(seen_other))
        await asyncio.sleep(1.5)
        stopped.stop()
        await asyncio.sleep(3)
        stopped.resume()
        await asyncio.sleep(1.9)
        return seen, seen_other, stopped.stopped

    seen, other, stopped = run(main())
    assert seen == [1.0, 4.5, 5.5]
    assert other == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert stopped == 3.0


def test_what_a_process_starts_belongs_to_it() -> None:
    async def parent(seen: list[float]) -> None:
        loop().call_later(0.5, lambda: asyncio.ensure_future(tick(seen)))
        await asyncio.sleep(1e9)

    async def main() -> list[float]:
        process = Process(loop(), "a")
        seen: list[float] = []
        process.spawn(parent(seen))
        await asyncio.sleep(2)
        process.stop()
        await asyncio.sleep(10)
        return seen

    assert run(main()) == [1.5]


def test_a_killed_process_never_runs_again() -> None:
    async def main() -> list[float]:
        seen: list[float] = []
        process = Process(loop(), "a")
        process.spawn(tick(seen))
        await asyncio.sleep(2.5)
        process.stop()
        process.kill()
        process.resume()
        await asyncio.sleep(10)
        assert seen == [1.0, 2.0]
        return seen

    run(main())


def test_two_runs_of_one_seed_are_the_same_run() -> None:
    async def main(seed: int) -> list[tuple[float, int]]:
        rng, log = random.Random(seed), []

        async def walk(name: int) -> None:
            for _ in range(20):
                await asyncio.sleep(rng.choice([0.0, 0.1, 0.2]))
                log.append((loop().time(), name))

        await asyncio.gather(*(walk(name) for name in range(10)))
        return log

    assert run(main(1)) == run(main(1))
    assert run(main(1)) != run(main(2))
