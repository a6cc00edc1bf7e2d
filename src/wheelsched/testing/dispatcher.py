"""A dispatcher in memory: simulations run on it, and users' tests of what they schedule.

Invariant: as over HTTP, `send` gives an outcome for each callback, ends by the longest timeout of
its batch, and raises nothing; and time is the clock's alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from uuid import UUID

from msgspec import Struct

from wheelsched.core.egress import OwnListener
from wheelsched.core.model import Target, format_run_id
from wheelsched.core.outcome import Outcome, Succeeded, TransportFailure, classify
from wheelsched.ports import Callback, Clock, Prepared, Route


class MemoryPrepared(Prepared, frozen=True, kw_only=True):
    """A prepared callback that can still be read."""

    callback: Callback


class Sent(Struct, frozen=True, kw_only=True):
    """A request that went out."""

    at_ns: int  # by the clock
    route: Route
    callbacks: tuple[Callback, ...]


Handler = Callable[[Route, Sequence[Callback]], Awaitable[Sequence[Outcome]]]


async def succeed(route: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
    """The handler of a worker that does everything at once."""
    return [Succeeded(http_status=200)] * len(callbacks)


class MemoryDispatcher:
    """A `Dispatcher` whose workers are a function.

    `handler` stands for all of them. It takes its time by sleeping on the clock, and what it
    raises is a lost connection. `sent` has every request in its order. `is_connected` says of each
    whether there is a connection for it, so that it begins at once, as it does by default.
    """

    def __init__(self, clock: Clock, handler: Handler = succeed) -> None:
        self._clock = clock
        self.handler = handler
        self.sent: list[Sent] = []
        self.is_connected: Callable[[], bool] = lambda: True
        self._routes: dict[Hashable, Route] = {}

    def avoid(self, listeners: Collection[OwnListener]) -> None:
        """Nothing: no listener of ours is reached through memory."""

    def route(self, tenant_id: UUID, target: Target) -> Route:
        headers = tuple(sorted(target.headers.items()))
        identity = (tenant_id, target.url, target.method, target.batch, headers)
        route = self._routes.get(identity)
        if route is None:
            origin = "/".join(target.url.split("/")[:3])
            route = Route(tenant_id=tenant_id, target=target, origin=origin)
            self._routes[identity] = route
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
        """What `send` promises; with a connection that is there, it has begun."""
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


def _failed(failure: TransportFailure, callbacks: Sequence[Callback]) -> list[Outcome]:
    return [classify(failure, now_us=0)] * len(callbacks)
