"""One request, from its head to its answer: read `_answer_in_place` first.

Invariant: nothing is done for a request before its caller is known and may do it. The time of one
that may write is by a fresh reading of the database's clock.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import hdrs, web
from msgspec.structs import replace

from wheelsched.api.authentication import Access, Authentication, require
from wheelsched.api.operation import Answer, Call, Operation, written
from wheelsched.api.places import Places
from wheelsched.api.rates import Rates
from wheelsched.api.reading import check_headers, decode_body, read_body, read_query
from wheelsched.api.replays import Replays, digest_of, read_key, seed_of
from wheelsched.api.surroundings import Surroundings
from wheelsched.config import ApiConfig
from wheelsched.ports import KeyedRequest
from wheelsched.wire.tenant import Scope

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Service:
    """What every operation has around it."""

    def __init__(
        self,
        authentication: Authentication,
        rates: Rates,
        replays: Replays,
        surroundings: Surroundings,
        config: ApiConfig,
    ) -> None:
        self._authentication = authentication
        self._rates = rates
        self._replays = replays
        self._surroundings = surroundings
        self._config = config
        self._places = Places(config)

    def handler(self, operation: Operation) -> Handler:
        """What the router calls for an operation."""
        return partial(self._answer, operation)

    async def _answer(self, operation: Operation, request: web.Request) -> web.Response:
        with self._places.take(operation, request):
            return await self._answer_in_place(operation, request)

    async def _answer_in_place(self, operation: Operation, request: web.Request) -> web.Response:
        check_headers(request, self._config)
        access = await self._authentication.identify(request)
        self._rates.spend(access.caller.tenant_id, access.requests_per_second)
        require(operation.scope, access.scopes)
        query = read_query(request, operation.query)
        body = await read_body(request, operation, self._config)
        key = read_key(request) if request.method == hdrs.METH_POST else None
        may_write = request.method != hdrs.METH_GET and operation.scope is not Scope.READ
        if key is None and may_write:  # by its key, the store knows its time
            await self._surroundings.refresh_now()
        call = self._call(operation, request, access, query, body)
        if key is None:
            return written(await operation.handle(call))

        async def work(begun: KeyedRequest) -> Answer:
            seed = seed_of(access.caller, key)
            keyed = replace(call, now_us=begun.begun_at_us, seed=seed)
            return await operation.handle(keyed)

        return await self._replays.answer(access.caller, key, digest_of(request, body), work)

    def _call(
        self, operation: Operation, request: web.Request, access: Access, query: Any, body: bytes
    ) -> Call[Any, Any]:
        return Call(
            caller=access.caller,
            now_us=self._surroundings.now_us(),
            query=query,
            body=decode_body(body, operation),
            path=request.match_info,
            content_type=request.content_type,
            if_match=request.headers.get(hdrs.IF_MATCH),
            scopes=access.scopes,
        )
