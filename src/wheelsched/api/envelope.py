"""Around every answer: its request id, its count, its line in the log, and problems for errors.

Invariant: every request is answered, and every answer has the request id that its log lines have.
A callback is refused whatever it asks for and whoever signed it: a job may name any address that
shards reach, and must not reach further through them than the tenant itself.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from wheelsched.api.connections import note_head
from wheelsched.api.operation import PREFIX, Operation
from wheelsched.api.problems import response_of
from wheelsched.api.surroundings import Surroundings
from wheelsched.errors import CallbackRefused
from wheelsched.wire.callback import is_callback

log = structlog.get_logger("wheelsched.api")

REQUEST_ID: Final = "X-Request-Id"
ALWAYS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

UNKNOWN: Final = "unknown"
_GIVEN_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def envelope(surroundings: Surroundings, operations: Sequence[Operation]) -> Middleware:
    """The outermost middleware."""
    names = {(each.method, PREFIX + each.path): each.name for each in operations}
    vitals = surroundings.vitals

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        note_head(request)
        begun_ns = surroundings.clock.now_ns()
        request_id = _request_id(request, surroundings)
        vitals.in_flight += 1
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                response = await _respond(request, handler, request_id)
            finally:
                vitals.in_flight -= 1
            took_us = (surroundings.clock.now_ns() - begun_ns) // 1_000
            log.info(
                "request.answered",
                method=request.method,
                path=request.path,
                status=response.status,
                took_us=took_us,
            )
        vitals.observe(_operation(request, names), response.status, took_us)
        if not request.content.is_eof():
            response.force_close()  # nobody wants the rest of a body that was refused
        response.headers.update(ALWAYS)
        response.headers[REQUEST_ID] = request_id
        return response

    return answer


async def _respond(request: web.Request, handler: Handler, request_id: str) -> web.StreamResponse:
    if is_callback(request.headers):
        return response_of(CallbackRefused(), request_id)
    try:
        return await handler(request)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - the last one who can answer
        return response_of(error, request_id)


def _operation(request: web.Request, names: Mapping[tuple[str, str], str]) -> str:
    """The name of what was asked: an operation, a probe, or neither."""
    resource = request.match_info.route.resource
    if resource is None:
        return UNKNOWN
    return names.get((request.method, resource.canonical)) or resource.canonical.strip("/")


def _request_id(request: web.Request, surroundings: Surroundings) -> str:
    given = request.headers.get(REQUEST_ID, "")
    if _GIVEN_ID.fullmatch(given):
        return given
    return f"{surroundings.random.getrandbits(128):032x}"
