"""Serves the receiver with aiohttp.

Invariant: a body is read up to the receiver's limit, in bounded time, whatever the limits of the
surrounding application are.
"""

import asyncio
from http import HTTPStatus

from aiohttp import web

from wheelsched.worker.answer import Answer, refuse
from wheelsched.worker.receiver import Receiver


async def handle(receiver: Receiver, request: web.Request, read_timeout_s: float) -> web.Response:
    """Handle one request."""
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
