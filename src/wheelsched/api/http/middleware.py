"""The outermost middleware: request ids, metrics, logs, and problem documents for errors.

Invariant: every request gets a response that carries the request id of its log lines. Callbacks are
always rejected: a job may target any address that shards can reach, and must not use the API
through it.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from wheelsched.api.environment import Environment
from wheelsched.api.http.connections import mark_head_received
from wheelsched.api.http.operation import PREFIX, Operation
from wheelsched.api.http.problems import response_of
from wheelsched.errors import CallbackRefused
from wheelsched.wire.callback import is_callback

REQUEST_ID: Final = "X-Request-Id"
ALWAYS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

UNKNOWN: Final = "unknown"
_GIVEN_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def middleware(environment: Environment, operations: Sequence[Operation]) -> Middleware:
    """The outermost middleware."""
    names = {(each.method, PREFIX + each.path): each.name for each in operations}
    vitals = environment.vitals
    log = structlog.get_logger("wheelsched.api").bind()  # an unbound one is bound at each call

    @web.middleware
    async def handle(request: web.Request, handler: Handler) -> web.StreamResponse:
        mark_head_received(request)
        begun_ns = environment.clock.now_ns()
        request_id = _request_id(request, environment)
        vitals.in_flight += 1
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                response = await _respond(request, handler, request_id)
            finally:
                vitals.in_flight -= 1
            took_us = (environment.clock.now_ns() - begun_ns) // 1_000
            log.info(
                "request.answered",
                method=request.method,
                path=request.path,
                status=response.status,
                took_us=took_us,
            )
        vitals.observe(_operation(request, names), response.status, took_us)
        if not request.content.is_eof():
            response.force_close()  # do not read the rest of a rejected body
        response.headers.update(ALWAYS)
        response.headers[REQUEST_ID] = request_id
        return response

    return handle


async def _respond(request: web.Request, handler: Handler, request_id: str) -> web.StreamResponse:
    if is_callback(request.headers):
        return response_of(CallbackRefused(), request_id)
    try:
        return await handler(request)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - the last place that can respond
        return response_of(error, request_id)


def _operation(request: web.Request, names: Mapping[tuple[str, str], str]) -> str:
    """The operation id, the probe name or `unknown`."""
    resource = request.match_info.route.resource
    if resource is None:
        return UNKNOWN
    return names.get((request.method, resource.canonical)) or resource.canonical.strip("/")


def _request_id(request: web.Request, environment: Environment) -> str:
    given = request.headers.get(REQUEST_ID, "")
    if _GIVEN_ID.fullmatch(given):
        return given
    return f"{environment.random.getrandbits(128):032x}"
