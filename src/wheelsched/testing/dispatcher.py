"""A dispatcher in memory, for simulations and for users' tests.

Invariant: like over HTTP, `send` returns an outcome for each callback within the longest timeout of
its batch, and raises nothing. Time is only that of the given clock.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from uuid import UUID

from msgspec import Struct

from wheelsched.core.model import HttpTarget, Target, format_run_id
from wheelsched.core.outcome import Outcome, Succeeded, TransportFailure, classify
from wheelsched.core.targets.egress import OwnListener
from wheelsched.ports import Callback, Clock, Prepared, Route, RunOwner
from wheelsched.ports.work import Attempted


class MemoryPrepared(Prepared, frozen=True, kw_only=True):
    """A prepared callback that keeps the original."""

    callback: Callback


class Sent(Struct, frozen=True, kw_only=True):
    """A request that was sent."""

    at_ns: int  # by the clock
    route: Route
    callbacks: tuple[Callback, ...]


Handler = Callable[[Route, Sequence[Callback]], Awaitable[Sequence[Outcome]]]


async def succeed(route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
    """A handler that succeeds at once."""
    return [Succeeded(http_status=200)] * len(callbacks)


class MemoryDispatcher:
    """A `Dispatcher` that calls a function in place of workers.

    `handler` can sleep on the clock to take time. An exception counts as a lost connection. `sent`
    lists all requests in order. `is_connected` decides for each request whether a connection is
    open, so that it begins at once; by default it always is.
    """

    def __init__(self, clock: Clock, handler: Handler = succeed) -> None:
        self._clock = clock
        self.handler = handler
        self.sent: list[Sent] = []
        self.is_connected: Callable[[], bool] = lambda: True
        self._routes: dict[Hashable, Route] = {}

    def serve(self, owner: RunOwner | None) -> None:
        """Do nothing: every outcome is a response."""

    def cancel(self, tenant_id: UUID, attempts: Sequence[Attempted]) -> None:
        """Do nothing: a callback cannot be stopped."""

    def avoid(self, listeners: Collection[OwnListener]) -> None:
        """Do nothing, because memory reaches no listeners."""

    def route(self, tenant_id: UUID, target: Target) -> Route:
        identity = (tenant_id, *_identity(target))
        route = self._routes.get(identity)
        if route is None:
            is_http = isinstance(target, HttpTarget)
            route = self._routes[identity] = Route(
                tenant_id=tenant_id,
                target=target,
                batch=target.batch if isinstance(target, HttpTarget) else 1,
                origin="/".join(target.name.split("/")[:3]) if is_http else target.name,
            )
        return route

    def prepare(self, route: Route, callback: Callback) -> MemoryPrepared:
        return MemoryPrepared(
            run_id=format_run_id(callback.key),
            idempotency_key=callback.idempotency_key,
            token=callback.token,
            send_at_us=callback.send_at_us,
            timeout_us=callback.timeout_us,
            secrets=callback.secrets,
            content=callback.payload,
            callback=callback,
        )

    def send(
        self, route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]
    ) -> asyncio.Future[list[Outcome] | None]:
        if not self.is_connected():
            return asyncio.ensure_future(self.carry(route, batch, begin))
        has_begun = begin()
        return asyncio.ensure_future(self.carry(route, batch, lambda: has_begun))

    async def carry(
        self, route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]
    ) -> list[Outcome] | None:
        """The result of `send`."""
        callbacks = tuple(
            prepared.callback for prepared in batch if isinstance(prepared, MemoryPrepared)
        )
        assert len(callbacks) == len(batch)
        if not begin():
            return None
        self.sent.append(Sent(at_ns=self._clock.now_ns(), route=route, callbacks=callbacks))
        timeout_us = max(callback.timeout_us for callback in callbacks)
        outcomes = await self._handle(route, callbacks, timeout_us * 1_000)
        assert len(outcomes) == len(batch)
        return outcomes

    async def _handle(
        self, route: Route, callbacks: Sequence[Callback], timeout_ns: int
    ) -> list[Outcome]:
        handling = asyncio.ensure_future(self.handler(route, callbacks))
        timeout = self._clock.alarm(handling.cancel)
        timeout.set(self._clock.now_ns() + timeout_ns)
        try:
            await asyncio.wait([handling])
        finally:
            timeout.close()
            handling.cancel()
        if handling.cancelled():
            return _failed(TransportFailure.TIMEOUT, callbacks)
        if handling.exception() is not None:
            return _failed(TransportFailure.CONNECTION_LOST, callbacks)
        return list(handling.result())


def _identity(target: Target) -> tuple[Hashable, ...]:
    if isinstance(target, HttpTarget):
        headers = tuple(sorted(target.headers.items()))
        return target.url, target.method, target.batch, headers
    return (target,)


def _failed(failure: TransportFailure, callbacks: Sequence[Callback]) -> list[Outcome]:
    return [classify(failure, now_us=0)] * len(callbacks)
