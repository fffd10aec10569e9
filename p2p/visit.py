"""A stranger's talk with one member, for a checkup: questions and answers, a call back, figures of the link."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TypeVar

from p2p.agent.checkup import LARGEST, filler
from p2p.diagnosis import Link
from p2p.errors import ContractError, JoinError, SecretError, WireError
from p2p.net import keys, wire
from p2p.net.messages import PROTOCOL, CallBack, Called, CalledBack, Envelope, Knock, Measure, Measured, Message, Refusal, Terms
from p2p.net.transport import Route, Transport

M = TypeVar("M", bound=Message)

ANSWER = 5.0
"""Seconds that a member has for an answer."""
ROUNDS = 5
"""Round trips, of which the shortest counts."""
MEASURING = 1.0
"""Seconds of each measurement of bandwidth, at least one round of messages."""
WINDOW = 4
"""Messages under way while measuring."""
FIRST = 16 * 1024
"""Bytes of the first one; doubled while a round takes less than a quarter of the measurement."""


class Visit:
    """The receiver of a transport of its own; `member` is the address that is visited."""

    def __init__(self, transport: Transport, secret: bytes | None, member: str) -> None:
        self.transport = transport
        self.member = member
        self.state = 0  # bytes of the swarm's shared state, once something was measured
        self._envelope = Envelope(keys.swarm_id(secret), secrets.token_hex(16), incarnation=0, view=0)
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._failure: JoinError | None = None
        self._seq = 0
        self._token = secrets.randbits(60)
        self._called = asyncio.Event()

    # --- Receiver -----------------------------------------------------------------------------------------------------

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        try:
            _, message = wire.decode(header, None if payload is None else payload.nbytes)
        except WireError as error:
            self._fail(ContractError(f"{self.member} speaks otherwise: {error}"))
            return
        if isinstance(message, Called):
            self._called.set()
        elif isinstance(message, Refusal):
            kind = JoinError if message.reason == "busy" else ContractError
            self._fail(kind(f"{self.member} refuses: {message.reason}: {message.theirs}"))
        else:
            answer = self._waiting.get(_key(message))
            if answer is not None and not answer.done():
                answer.set_result(message)

    def lost(self, route: Route, reason: str) -> None:
        """The transport dials on; only a wrong secret stays wrong."""
        self._failure = JoinError(f"{self.member}: {reason}")
        if reason == "wrong secret":
            self._fail(SecretError(f"{self.member}: wrong secret"))

    # --- questions ----------------------------------------------------------------------------------------------------

    async def knock(self) -> tuple[Terms, float]:
        """The swarm's terms, and the round trip in seconds. Raises JoinError (SecretError, ContractError) with the reason."""
        route = self.transport.dial(self.member)
        terms = await self._ask(route, Knock(PROTOCOL), Terms, "Terms")
        trips = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            await self._ask(route, Knock(PROTOCOL), Terms, "Terms")
            trips.append(time.perf_counter() - began)
        return terms, min(trips)

    async def ask(self, question: Message, expected: type[M]) -> M:
        """One question over the control connection."""
        return await self._ask(self.transport.dial(self.member), question, expected, expected.__name__)

    async def call_back(self) -> str:
        """Have the member dial our advertised address; why that failed, empty if its call came."""
        asking = asyncio.ensure_future(self.ask(CallBack(self.transport.control, self._token), CalledBack))
        called = asyncio.ensure_future(self._called.wait())
        try:
            await asyncio.wait({asking, called}, return_when=asyncio.FIRST_COMPLETED)
            if self._called.is_set():
                return ""
            return (await asking).reason or "it was sent, and nothing arrived"
        except JoinError as error:
            return str(error)
        finally:
            called.cancel()
            asking.cancel()
            await asyncio.wait({asking, called})

    async def passes(self, data: str, nbytes: int) -> bool:
        """Whether so many bytes come through to the data address and back."""
        try:
            await self._measure(self.transport.dial(data), nbytes, nbytes)
        except (SecretError, ContractError):
            raise
        except JoinError:
            return False
        return True

    async def link(self, data: str, round_trip: float) -> Link:
        """Bandwidth both ways, one after the other."""
        route = self.transport.dial(data)
        return Link(round_trip, await self._bandwidth(route, 1, 0), await self._bandwidth(route, 0, 1))

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _bandwidth(self, route: Route, there: int, back: int) -> float:
        """Bytes a second of the last round; `there` and `back` are 0 or 1."""
        size, began = FIRST, time.perf_counter()
        while True:
            start = time.perf_counter()
            await asyncio.gather(*(self._measure(route, there * size, back * size) for _ in range(WINDOW)))
            now = time.perf_counter()
            if now - began > MEASURING:
                return WINDOW * size / (now - start)
            if now - start < MEASURING / 4:
                size = min(2 * size, LARGEST)

    async def _measure(self, route: Route, there: int, back: int) -> None:
        self._seq += 1
        shard, payload = filler(there)
        answer = await self._ask(route, Measure(self._seq, back, shard), Measured, f"Measured {self._seq}", payload)
        self.state = answer.state

    async def _ask(self, route: Route, question: Message, expected: type[M], key: str, payload: memoryview | None = None) -> M:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[key] = answer
        try:
            async with asyncio.timeout(ANSWER):
                while self.transport.send(route, wire.encode(self._envelope, question), payload) is None:
                    await asyncio.wait([answer], timeout=0.05)
                    if answer.done():
                        break
                found = await answer
        except TimeoutError:
            raise self._failure or JoinError(f"{self.member}: no answer within {ANSWER:g} s") from None
        finally:
            del self._waiting[key]
        assert isinstance(found, expected)
        return found

    def _fail(self, error: JoinError) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)


def _key(message: Message) -> str:
    return f"Measured {message.seq}" if isinstance(message, Measured) else type(message).__name__
