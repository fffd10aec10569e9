"""The simulated network: order, latency, bandwidth, cuts, lost connections, corruption, memory."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2p.errors import ListenError, WireError
from p2p.net.memory import ROOM, SILENCE, MemoryTransport, Network
from p2p.net.physics import Line, Pipe, Underlay
from p2p.net.transport import Route, Transport
from p2p.sim.clock import Process, VirtualLoop, run

MS = 0.001


class Inbox:
    """Keeps what came, with its time; answers if told to."""

    def __init__(self, transport: MemoryTransport, answer: bytes | None = None) -> None:
        self.transport = transport
        self.answer = answer
        self.came: list[tuple[float, bytes, bytes | None]] = []
        self.reasons: list[tuple[float, str]] = []
        self.routes: list[Route] = []

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        self.came.append((now(), header, None if payload is None else bytes(payload)))
        self.routes.append(route)
        if self.answer is not None:
            self.transport.send(route, self.answer)

    def lost(self, route: Route, reason: str) -> None:
        self.reasons.append((now(), reason))

    @property
    def headers(self) -> list[bytes]:
        return [header for _, header, _ in self.came]

    @property
    def times(self) -> list[float]:
        return [round(time, 9) for time, _, _ in self.came]


def now() -> float:
    return asyncio.get_running_loop().time()


async def host(network: Network, name: str, site: str = "", answer: bytes | None = None) -> tuple[MemoryTransport, Inbox]:
    transport = network.transport(name, site)
    inbox = Inbox(transport, answer)
    await transport.start(inbox)
    return transport, inbox


async def pair(network: Network) -> tuple[MemoryTransport, Inbox, MemoryTransport, Inbox]:
    return *await host(network, "a"), *await host(network, "b")


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_it_is_a_transport() -> None:
    transport: Transport = Network().transport("a")
    assert (transport.control, transport.data) == ("tcp://a:7000", "tcp://a:7001")


def test_under_an_ordinary_loop_messages_and_answers_arrive_in_order() -> None:
    async def main() -> None:
        network = Network()
        a, inbox_a = await host(network, "a")
        _, inbox_b = await host(network, "b", answer=b"yes")
        route = a.dial("tcp://b:7000")
        assert route == a.dial("tcp://b:7000")
        for number in range(10):
            assert a.send(route, b"%d" % number, memoryview(b"payload"))
        await settle()
        assert inbox_b.headers == [b"%d" % number for number in range(10)]
        assert inbox_b.came[0][2] == b"payload"
        assert inbox_a.headers == [b"yes"] * 10
        assert set(inbox_a.routes) == {route}

    asyncio.run(main())


def test_a_payload_is_read_only_and_stays_valid() -> None:
    async def main() -> None:
        network = Network()
        a, _, _, _ = await pair(network)
        kept: list[memoryview] = []
        memory = bytearray(b"first")
        sent = a.send(a.dial("tcp://b:7001"), b"h", memoryview(memory))
        network.listening["tcp://b:7001"]._receiver.received = lambda _r, _h, payload: kept.append(payload)  # type: ignore
        assert sent is not None
        assert not sent.done
        await settle()
        assert sent.done
        memory[:] = b"later"
        assert kept[0].readonly
        assert bytes(kept[0]) == b"first"

    asyncio.run(main())


def test_latency_is_there_each_way_and_opening_takes_a_round_trip() -> None:
    async def main() -> None:
        network = Network(Underlay(access=Line(latency=10 * MS), inside=Line(latency=5 * MS)))
        a, inbox_a = await host(network, "a")
        _, inbox_b = await host(network, "b", answer=b"yes")
        a.send(a.dial("tcp://b:7000"), b"1")
        await asyncio.sleep(1)
        a.send(a.dial("tcp://b:7000"), b"2")
        await asyncio.sleep(1)
        assert inbox_b.times == [0.075, 1.025]
        assert inbox_a.times == [0.1, 1.05]

    run(main())


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.lists(st.floats(0, 0.01), min_size=1, max_size=40))
def test_jitter_never_reorders_and_stays_in_its_bounds(seed: int, pauses: list[float]) -> None:
    async def main() -> None:
        network = Network(Underlay(seed, inside=Line(latency=10 * MS, jitter=20 * MS)))
        a, _, _, inbox = await pair(network)
        sent = []
        await asyncio.sleep(1)
        for number, pause in enumerate(pauses):
            a.send(a.dial("tcp://b:7000"), b"%d" % number)
            sent.append(max(now(), 1 + 20 * MS))
            await asyncio.sleep(pause)
        await asyncio.sleep(1)
        assert inbox.headers == [b"%d" % number for number in range(len(pauses))]
        for left, came in zip(sent, inbox.times, strict=True):
            assert came > left + 10 * MS - 1e-6

    run(main())


def test_the_seed_decides_the_jitter() -> None:
    async def main(seed: int) -> list[float]:
        network = Network(Underlay(seed, inside=Line(jitter=1.0)))
        a, _, _, inbox = await pair(network)
        for _ in range(5):
            a.send(a.dial("tcp://b:7000"), b"h")
        await asyncio.sleep(10)
        return inbox.times

    assert run(main(1)) == run(main(1))
    assert run(main(1)) != run(main(2))


@pytest.mark.parametrize("senders", [1, 3, 8])
def test_transfers_over_a_shared_line_add_up_to_its_bandwidth(senders: int) -> None:
    async def main() -> None:
        between = Line(latency=20 * MS, bandwidth=1e6)
        network = Network(Underlay(access=Line(bandwidth=4e5), between=between), scale=100.0)
        _, inbox = await host(network, "sink0", "eu")
        inboxes = [inbox] + [(await host(network, f"sink{i}", "eu"))[1] for i in range(1, senders)]
        sources = [(await host(network, f"source{i}", "us"))[0] for i in range(senders)]
        for _ in range(50):
            for i, source in enumerate(sources):
                assert source.send(source.dial(f"tcp://sink{i}:7001"), b"", memoryview(bytes(400)))
        await asyncio.sleep(100)
        last = max(inbox.times[-1] for inbox in inboxes)
        rate = senders * 50 * 40_000 / last
        assert rate == pytest.approx(min(1e6, senders * 4e5), rel=0.02)
        assert [len(inbox.came) for inbox in inboxes] == [50] * senders

    run(main())


def test_flows_share_a_line_fairly_whatever_they_have_queued() -> None:
    async def main() -> None:
        network = Network(Underlay(between=Line(bandwidth=1e6)))
        _, inbox_a = await host(network, "a", "eu")
        _, inbox_b = await host(network, "b", "eu")
        greedy, _ = await host(network, "greedy", "us")
        modest, _ = await host(network, "modest", "us")
        for _ in range(60):
            greedy.send(greedy.dial("tcp://a:7001"), b"", memoryview(bytes(100_000)))
        await asyncio.sleep(0.95)
        for _ in range(10):
            modest.send(modest.dial("tcp://b:7001"), b"", memoryview(bytes(50_000)))
        await asyncio.sleep(10)
        assert inbox_b.times[-1] == pytest.approx(2.0, abs=0.11)  # half a MB at half of 1 MB/s, from 0.95 s on
        assert inbox_a.times[-1] == pytest.approx(6.5, abs=0.01)

    run(main())


def test_a_probe_does_not_queue_behind_a_model() -> None:
    async def main() -> None:
        network = Network(Underlay(access=Line(latency=1 * MS, bandwidth=1e6)))
        a, _, _, inbox = await pair(network)
        for _ in range(10):
            a.send(a.dial("tcp://b:7001"), b"model", memoryview(bytes(1_000_000)))
        await asyncio.sleep(0.5)
        a.send(a.dial("tcp://b:7000"), b"probe")
        await asyncio.sleep(100)
        assert inbox.headers[0] == b"probe"
        assert inbox.times[0] == pytest.approx(0.506, abs=0.001)
        assert inbox.times[-1] == pytest.approx(10.0, abs=0.02)

    run(main())


def test_a_bandwidth_inside_a_site_is_refused() -> None:
    with pytest.raises(ValueError, match="give `access` the bandwidth"):
        Underlay(inside=Line(bandwidth=1.0))


def test_slowing_and_restoring_a_line() -> None:
    async def main() -> None:
        network = Network(Underlay(access=Line(latency=10 * MS, bandwidth=1e6)))
        a, _, _, inbox = await pair(network)
        for factor in (1.0, 4.0, 1.0):
            network.slow("a", factor)
            network.slow("b", factor)
            sent = now()
            a.send(a.dial("tcp://b:7001"), b"", memoryview(bytes(100_000)))
            await asyncio.sleep(5)
            opening = 40 * MS if sent == 0.0 else 0.0
            assert inbox.times[-1] - sent == pytest.approx(opening + factor * 120 * MS)

    run(main())


def test_what_was_sent_on_a_slow_line_arrives_no_sooner_because_the_line_is_fast_again() -> None:
    async def main() -> None:
        network = Network(Underlay(access=Line(latency=10 * MS)))
        a, _, _, inbox = await pair(network)
        network.slow("a", 100.0)
        a.send(a.dial("tcp://b:7000"), b"slow")
        await asyncio.sleep(2.5)
        network.slow("a", 1.0)
        a.send(a.dial("tcp://b:7000"), b"fast")
        await asyncio.sleep(5)
        assert inbox.headers == [b"slow", b"fast"]
        assert inbox.times == [3.03, 3.03]

    run(main())


def test_control_messages_take_their_bytes_from_the_line_too() -> None:
    async def main() -> None:
        network = Network(Underlay(access=Line(bandwidth=1e6)))
        a, _, _, inbox = await pair(network)
        a.send(a.dial("tcp://b:7001"), b"", memoryview(bytes(1_000_000)))
        a.send(a.dial("tcp://b:7001"), b"", memoryview(bytes(1_000_000)))
        await asyncio.sleep(0.1)
        for _ in range(10):
            a.send(a.dial("tcp://b:7000"), bytes(100_000))
        await asyncio.sleep(10)
        assert inbox.times[-1] == pytest.approx(3.0)

    run(main())


def test_a_line_that_takes_no_time_can_t_be_slowed() -> None:
    async def main() -> None:
        network = Network()
        await host(network, "a")
        with pytest.raises(ValueError, match="can't be slowed"):
            network.slow("a", 2.0)

    run(main())


@pytest.mark.parametrize("channel", [7000, 7001])
def test_a_full_connection_takes_no_more_and_later_some(channel: int) -> None:
    async def main() -> None:
        network = Network(Underlay(inside=Line(latency=1.0)))
        a, _, _, inbox = await pair(network)
        route = a.dial(f"tcp://b:{channel}")
        for _ in range(2):
            taken = sum(a.send(route, b"h") is not None for _ in range(1000))
            assert taken == ROOM[channel]
            await asyncio.sleep(5)
        assert len(inbox.came) == 2 * ROOM[channel]

    run(main())


def test_nobody_there_is_refused_again_and_again_until_somebody_is() -> None:
    async def main() -> None:
        network = Network()
        a, inbox_a = await host(network, "a")
        a.send(a.dial("tcp://b:7000"), b"early")
        await asyncio.sleep(1.0)
        assert [(round(time, 6), reason) for time, reason in inbox_a.reasons] == [
            (0.0, "connection refused"),
            (0.2, "connection refused"),
            (0.6, "connection refused"),
        ]
        _, inbox_b = await host(network, "b")
        await asyncio.sleep(1.0)
        assert inbox_b.headers == [b"early"]
        network.disconnect("b")
        a.send(a.dial("tcp://b:7000"), b"soon")
        await asyncio.sleep(0.3)
        assert inbox_b.headers == [b"early", b"soon"]

    run(main())


def test_forgotten_connections_are_not_dialled_again() -> None:
    async def main() -> None:
        network = Network()
        a, inbox = await host(network, "a")
        route = a.dial("tcp://b:7000")
        sent = a.send(route, b"h")
        a.forget(route)
        a.forget(route)
        assert sent is not None
        assert sent.done
        assert a.send(route, b"h") is None
        await asyncio.sleep(100)
        assert inbox.reasons == []

    run(main())


def test_a_crash_breaks_connections_both_ways_and_what_it_had_sent_still_arrives() -> None:
    async def main() -> None:
        network = Network(Underlay(inside=Line(latency=1.0)))
        a, inbox_a, b, inbox_b = await pair(network)
        a.send(a.dial("tcp://b:7000"), b"hello")
        await asyncio.sleep(5)
        answer = inbox_b.routes[0]
        b.send(answer, b"last words")
        to_b = a.send(a.dial("tcp://b:7000"), b"too late")
        network.crash("b")
        await asyncio.sleep(0.5)
        assert to_b is not None
        assert to_b.done
        await asyncio.sleep(1.0)
        assert inbox_a.headers == [b"last words"]
        assert inbox_a.reasons[0] == (6.0, "closed")
        assert inbox_b.headers == [b"hello"]
        assert b.send(answer, b"ghost") is None

    run(main())


def test_a_host_comes_back_under_its_name() -> None:
    async def main() -> None:
        network = Network()
        a, inbox_a, b, _ = await pair(network)
        a.send(a.dial("tcp://b:7000"), b"1")
        await asyncio.sleep(1)
        await b.close()
        await b.close()
        await asyncio.sleep(1)
        _, again = await host(network, "b")
        a.send(a.dial("tcp://b:7000"), b"2")
        await asyncio.sleep(10)
        assert again.headers == [b"2"]
        assert inbox_a.reasons[0] == (1.0, "closed")
        with pytest.raises(ListenError, match="tcp://b:7000 is in use"):
            await host(network, "b")

    run(main())


def test_an_answer_route_dies_with_its_connection() -> None:
    async def main() -> None:
        network = Network()
        a, _, b, inbox = await pair(network)
        a.send(a.dial("tcp://b:7000"), b"1")
        await asyncio.sleep(1)
        network.disconnect("b")
        assert not b._theirs
        assert b.send(inbox.routes[0], b"answer") is None
        await asyncio.sleep(1)
        a.send(a.dial("tcp://b:7000"), b"2")
        await asyncio.sleep(1)
        assert inbox.routes[1] != inbox.routes[0]
        assert b.send(inbox.routes[1], b"answer") is not None

    run(main())


def test_what_is_sent_during_a_short_cut_arrives_after_it_in_order() -> None:
    async def main() -> None:
        network = Network(Underlay(inside=Line(latency=0.1)))
        a, inbox_a, _, inbox_b = await pair(network)
        route = a.dial("tcp://b:7000")
        a.send(route, b"before")
        await asyncio.sleep(0.25)
        network.cut("b")
        for number in range(3):
            a.send(route, b"%d" % number)
            await asyncio.sleep(2)
        assert inbox_b.headers == []
        network.heal("b")
        a.send(route, b"after")
        await asyncio.sleep(1)
        assert inbox_b.headers == [b"before", b"0", b"1", b"2", b"after"]
        assert inbox_a.reasons == []

    run(main())


def test_a_long_cut_breaks_the_connection_and_loses_what_was_under_way() -> None:
    async def main() -> None:
        network = Network(Underlay(inside=Line(latency=0.1)))
        a, inbox_a, _, inbox_b = await pair(network)
        route = a.dial("tcp://b:7000")
        a.send(route, b"1")
        await asyncio.sleep(1)
        network.cut("b")
        gone = a.send(route, b"gone")
        await asyncio.sleep(SILENCE + 1)
        assert gone is not None
        assert gone.done
        a.send(route, b"kept")
        await asyncio.sleep(30)
        assert {reason for _, reason in inbox_a.reasons} == {"timed out"}
        network.heal("b")
        await asyncio.sleep(30)
        assert inbox_b.headers == [b"1", b"kept"]

    run(main())


def test_a_cut_parts_sites_and_leaves_the_rest_alone() -> None:
    async def main() -> None:
        network = Network()
        transports = {}
        inboxes = {}
        for name, site in [("a", "eu"), ("b", "eu"), ("c", "us"), ("d", "asia")]:
            transports[name], inboxes[name] = await host(network, name, site)
        network.cut("eu")
        for name, transport in transports.items():
            for other in transports:
                transport.send(transport.dial(f"tcp://{other}:7000"), name.encode())
        await asyncio.sleep(1)
        came = {name: set(inbox.headers) for name, inbox in inboxes.items()}
        assert came == {"a": {b"a", b"b"}, "b": {b"a", b"b"}, "c": {b"c", b"d"}, "d": {b"c", b"d"}}

    run(main())


def test_corruption_flips_one_bit_of_a_share_of_the_messages() -> None:
    async def main() -> None:
        network = Network(Underlay(3))
        a, _, _, inbox = await pair(network)
        network.corrupt("b", 0.2)
        for _ in range(50):
            for _ in range(20):
                a.send(a.dial("tcp://b:7001"), b"header", memoryview(bytes(16)))
                a.send(a.dial("tcp://b:7000"), b"\0" * 8)
            await asyncio.sleep(1)
        payloads = [payload for _, _, payload in inbox.came if payload is not None]
        headers = [header for _, header, payload in inbox.came if payload is None]
        for spoilt in (payloads, headers):
            bits = [int.from_bytes(text).bit_count() for text in spoilt]
            assert set(bits) == {0, 1}
            assert sum(bits) / len(bits) == pytest.approx(0.2, abs=0.04)

    run(main())


def test_a_stopped_process_takes_its_messages_when_it_resumes() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        network = Network()
        process = Process(loop, "b")
        _, inbox = await process.spawn(host(network, "b"))
        a, _ = await host(network, "a")
        process.stop()
        a.send(a.dial("tcp://b:7000"), b"h")
        await asyncio.sleep(5)
        assert inbox.came == []
        process.resume()
        await asyncio.sleep(1)
        assert inbox.times == [5.0]

    run(main())


def test_oversized_messages_are_the_sender_s_mistake() -> None:
    async def main() -> None:
        a, _ = await host(Network(), "a")
        with pytest.raises(WireError, match="size"):
            a.send(a.dial("tcp://b:7001"), b"", memoryview(bytes(9 * 1024 * 1024)))

    run(main())


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 3), st.integers(1, 100)), min_size=1, max_size=60))
def test_a_pipe_is_never_idle_while_something_waits(arrivals: list[tuple[int, float, int]]) -> None:
    """Oracle: a queue that works without pause ends its work at the same time, whatever the order of service."""

    async def main() -> list[float]:
        pipe, ends = Pipe(10.0), list[float]()
        for flow, pause, nbytes in arrivals:
            await asyncio.sleep(pause)
            pipe.enter(flow, nbytes, ends.append)
        await asyncio.sleep(1e4)
        return ends

    time = free = 0.0
    for _, pause, nbytes in arrivals:
        time += pause
        free = max(free, time) + nbytes / 10.0
    ends = run(main())
    assert len(ends) == len(arrivals)
    assert math.isclose(max(ends), free, rel_tol=1e-9)
