"""Handles one request, from its headers to its response; start with `_admit`.

Invariant: nothing is done for a request before its caller is authenticated and authorized. A
request that may write uses a fresh reading of the database clock.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import hdrs, web
from msgspec.structs import replace

from wheelsched.api.environment import Environment
from wheelsched.api.http.access_control import AccessControl
from wheelsched.api.http.admission import Admission
from wheelsched.api.http.authentication import Access
from wheelsched.api.http.connections import exempt, loss_of
from wheelsched.api.http.idempotency import IdempotencyKeys, digest_of, read_key, seed_of
from wheelsched.api.http.operation import ApiResponse, Call, Operation, to_response
from wheelsched.api.http.reading import check_headers, decode_body, read_body, read_query
from wheelsched.api.http.websocket import is_upgrade
from wheelsched.config import ApiConfig
from wheelsched.ports import KeyedRequest
from wheelsched.wire.tenant import Scope

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Respond = Callable[[], Awaitable[web.StreamResponse]]


class Service:
    """The steps around every operation: admission, authentication, rate limit, parsing,
    idempotency."""

    def __init__(
        self,
        access: AccessControl,
        admission: Admission,
        idempotency: IdempotencyKeys,
        environment: Environment,
        config: ApiConfig,
    ) -> None:
        self._access = access
        self._admission = admission
        self._idempotency = idempotency
        self._environment = environment
        self._config = config

    def handler(self, operation: Operation) -> Handler:
        """The aiohttp handler of an operation."""
        return partial(self._handle, operation)

    async def _handle(self, operation: Operation, request: web.Request) -> web.StreamResponse:
        with self._admission.take(operation, request):
            respond = await self._admit(operation, request)
            if not operation.is_waiting:
                return await respond()
        with self._environment.vitals.waiting_request():
            return await respond()

    async def _admit(self, operation: Operation, request: web.Request) -> Respond:
        """Reads a request; the result does what it asks for."""
        check_headers(request, self._config)
        access = await self._access.admit(request, operation.scope, operation.other_scopes)
        if operation.is_waiting:
            exempt(request)
        if operation.upgrade is not None and is_upgrade(request):
            return partial(operation.upgrade, request, access.caller)
        query = read_query(request, operation.query)
        body = await read_body(request, operation, self._config)
        key = read_key(request) if request.method == hdrs.METH_POST else None
        if operation.is_repeatable:
            return partial(
                self._respond, operation, self._call(operation, request, access, query, body)
            )
        may_write = request.method != hdrs.METH_GET and operation.scope is not Scope.READ
        if key is None and may_write:  # with a key, the store has the arrival time
            await self._environment.refresh_clock()
        call = self._call(operation, request, access, query, body)
        if key is None:
            return partial(self._respond, operation, call)

        async def work(begun: KeyedRequest) -> ApiResponse:
            seed = seed_of(access.caller, key)
            keyed = replace(call, now_us=begun.begun_at_us, seed=seed, is_copy=begun.is_copy)
            return await operation.handle(keyed)

        return partial(self._idempotency.run, access.caller, key, digest_of(request, body), work)

    async def _respond(self, operation: Operation, call: Call[Any, Any]) -> web.Response:
        return to_response(await operation.handle(call))

    def _call(
        self, operation: Operation, request: web.Request, access: Access, query: Any, body: bytes
    ) -> Call[Any, Any]:
        return Call(
            caller=access.caller,
            now_us=self._environment.now_us(),
            query=query,
            body=decode_body(body, operation),
            path=request.match_info,
            content_type=request.content_type,
            if_match=request.headers.get(hdrs.IF_MATCH),
            scopes=access.scopes,
            lost=loss_of(request) if operation.is_waiting else None,
        )
