"""Serves the receiver as an ASGI application, and stops it with the ASGI lifespan.

Invariant: a body is read up to the receiver's limit, in bounded time.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol, TypeAlias

from wheelsched.worker.answer import Answer, refuse
from wheelsched.worker.receiver import Receiver

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class Routes(Protocol):
    """An application or a router of FastAPI or Starlette."""

    def add_route(self, path: str, route: Any, *, include_in_schema: bool = True) -> None:
        """Serve a path with an ASGI application."""


class AsgiApplication:
    """The worker as an ASGI application, alone or as a part of another.

    It is an object, because Starlette would call a function with a `request`.
    """

    def __init__(
        self, receiver: Receiver, stop: Callable[[], Awaitable[None]], read_timeout_s: float
    ) -> None:
        self._receiver = receiver
        self._stop = stop
        self._read_timeout_s = read_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._handle(scope, receive, send)
            case "lifespan":
                await self._follow_lifespan(receive, send)
            case other:
                raise ValueError(f"a worker serves HTTP only, not {other!r}")

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await _answer(self._receiver, scope, receive, self._read_timeout_s)
        if answer is None:
            return
        headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _follow_lifespan(self, receive: Receive, send: Send) -> None:
        """Answer the server's startup and shutdown messages, and stop on shutdown."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self._stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


def mount(application: AsgiApplication, routes: Routes, path: str) -> None:
    """Serve a path with and without a trailing slash."""
    if not path.startswith("/"):
        raise ValueError(f"invalid path {path!r}; expected e.g. '/hooks'")
    stem = path.rstrip("/")
    for each in (stem, f"{stem}/"):
        if each:
            routes.add_route(each, application, include_in_schema=False)


async def _answer(
    receiver: Receiver, scope: Scope, receive: Receive, read_timeout_s: float
) -> Answer | None:
    """The response; None if the client disconnected before its request was complete."""
    body = bytearray()
    has_more = True
    try:
        async with asyncio.timeout(read_timeout_s):
            while has_more and len(body) <= receiver.max_body_bytes:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                has_more = message.get("more_body", False)
    except TimeoutError:
        return refuse(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time")
    # ASGI header names are lower case.
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return await receiver.receive(headers, bytes(body))
