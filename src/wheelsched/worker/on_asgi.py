"""The receiver as an ASGI application, and its end as part of ASGI's lifespan.

Invariant: a body is read up to the receiver's bound and no further, in bounded time.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, TypeAlias

from wheelsched.worker.answer import Answer, refuse
from wheelsched.worker.receiver import Receiver

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


async def handle(
    receiver: Receiver, scope: Scope, receive: Receive, send: Send, read_timeout_s: float
) -> None:
    """Answers one request."""
    answer = await _answer(receiver, scope, receive, read_timeout_s)
    if answer is None:
        return
    headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def live(stop: Callable[[], Awaitable[None]], receive: Receive, send: Send) -> None:
    """Follows the server from its start to its end, however long that takes."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await stop()
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _answer(
    receiver: Receiver, scope: Scope, receive: Receive, read_timeout_s: float
) -> Answer | None:
    """None when the client is gone before all of its request has come."""
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
    # Names of headers are lower case in ASGI.
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return await receiver.receive(headers, bytes(body))
