"""Questions and their answers: one open question per connection, each with a deadline."""

from __future__ import annotations

import asyncio

from p2p.agent.post import Post
from p2p.errors import JoinError, SecretError
from p2p.net.messages import Message
from p2p.net.transport import Route

RETRY = 0.05
"""Seconds before a question that found no room, or no connection yet, is sent again."""


class Requests:
    """Asks over control connections, before the other end is known as a member."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._open: dict[Route, asyncio.Future[Message]] = {}

    def dial(self, address: str) -> Route:
        """A connection to an address that a user gave. Raises JoinError for what is no address."""
        return self._post.transport.dial(address)

    def forget(self, route: Route) -> None:
        """Hang up."""
        self._post.transport.forget(route)

    async def ask(self, route: Route, message: Message, timeout: float) -> Message:
        """The answer. Raises JoinError with the reason: no answer in time, refused, wrong secret."""
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._open[route] = answer
        try:
            async with asyncio.timeout(timeout):
                while self._post.answer(route, message) is None and not answer.done():
                    await asyncio.wait([answer], timeout=RETRY)
                return await answer
        except TimeoutError:
            raise JoinError("no answer (timed out)") from None
        finally:
            if self._open.get(route) is answer:  # not asked again meanwhile
                del self._open[route]

    def answered(self, route: Route, message: Message) -> None:
        """An answer came; nobody may have asked."""
        waiting = self._open.get(route)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def lost(self, route: Route, reason: str) -> None:
        """The connection closed, or was refused."""
        waiting = self._open.get(route)
        if waiting is not None and not waiting.done():
            waiting.set_exception(SecretError(reason) if "secret" in reason else JoinError(reason))
