"""The receiver behind aiohttp.

Invariant: a body is read up to the receiver's bound and no further, in bounded time, whatever
limits the application around it has.
"""

import asyncio
from http import HTTPStatus

from aiohttp import web

from wheelsched.worker.answer import Answer, refuse
from wheelsched.worker.receiver import Receiver


async def handle(receiver: Receiver, request: web.Request, read_timeout_s: float) -> web.Response:
    """Answers one request."""
    answer = await _answer(receiver, request, read_timeout_s)
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


async def _answer(receiver: Receiver, request: web.Request, read_timeout_s: float) -> Answer:
    body = bytearray()
    try:
        async with asyncio.timeout(read_timeout_s):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > receiver.max_body_bytes:
                    break
    except TimeoutError:
        return refuse(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time")
    headers = {name.lower(): value for name, value in request.headers.items()}
    return await receiver.receive(headers, bytes(body))
