"""One question to one member over the network, without being a member: what `starlings join` and `status` do first."""

from __future__ import annotations

import asyncio
import secrets
from typing import Generic, TypeVar

from p2p.errors import ContractError, JoinError, SecretError, WireError
from p2p.net import keys, wire
from p2p.net.messages import Envelope, Message, Refusal, Status, Terms
from p2p.net.transport import Route
from p2p.net.zeromq import ZmqTransport

Answer = TypeVar("Answer", Terms, Status)

TIMEOUT = 5.0
"""Seconds until a member that doesn't answer is given up."""


def ask(address: str, secret: bytes | None, question: Message, expected: type[Answer], insecure: bool) -> Answer:
    """The member's answer, of the expected type. SecretError, ContractError, JoinError say why there is none."""
    return asyncio.run(_ask(address, secret, question, expected, insecure))


async def _ask(address: str, secret: bytes | None, question: Message, expected: type[Answer], insecure: bool) -> Answer:
    transport = ZmqTransport("tcp://127.0.0.1:0", secret=secret, insecure=insecure)
    listener = _Listener(address, expected)
    await transport.start(listener)
    try:
        stranger = Envelope(keys.swarm_id(secret), secrets.token_hex(16), incarnation=0, view=0)
        transport.send(transport.dial(address), wire.encode(stranger, question))
        async with asyncio.timeout(TIMEOUT):
            return await listener.answer
    except TimeoutError:
        raise JoinError(f"no answer from {address} within {TIMEOUT:g} s: {listener.reason}") from None
    finally:
        await transport.close()


class _Listener(Generic[Answer]):
    """Turns what the transport says into an answer, or into the error that ends the wait."""

    def __init__(self, address: str, expected: type[Answer]) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.reason = "nothing came back"
        self._address = address
        self._expected: type[Answer] = expected

    def received(self, route: Route, header: bytes, payload: memoryview | None) -> None:
        try:
            _, answer = wire.decode(header, None if payload is None else len(payload))
        except WireError as error:
            return self._fail(ContractError(f"{self._address} speaks otherwise: {error}"))
        if isinstance(answer, Refusal):
            return self._fail(ContractError(f"{self._address} refuses: {answer.reason}: {answer.theirs}"))
        if isinstance(answer, self._expected) and not self.answer.done():
            self.answer.set_result(answer)

    def lost(self, route: Route, reason: str) -> None:
        """The transport dials on; only a wrong secret stays wrong."""
        self.reason = reason
        if reason == "wrong secret":
            self._fail(SecretError(f"{self._address}: wrong secret; give the file that the swarm's launcher named"))

    def _fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
