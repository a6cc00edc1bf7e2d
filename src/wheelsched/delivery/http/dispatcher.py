"""The HTTP dispatcher, which the *fire* stage uses to send callbacks.

Invariant: whatever a worker does, `send` returns an outcome for each callback within the timeout of
its batch, and keeps no more of the response than its limit. Requests are independent: there are no
cookies, redirects, proxies or credentials from the environment.

At the due time a single callback costs one write: its request is ready as bytes, and its connection
is usually open. A task or a timer per callback would cost more than the request itself.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from msgspec import Struct

from wheelsched.closing import Closing
from wheelsched.config import DispatchConfig
from wheelsched.core.model import HttpTarget, Target
from wheelsched.core.outcome import Outcome, Rejected, TransportFailure
from wheelsched.core.targets.egress import OwnListener
from wheelsched.delivery.http.connection import Connection
from wheelsched.delivery.http.dial import Dialer
from wheelsched.delivery.http.dns_cache import DnsCache
from wheelsched.delivery.http.failure import explain_failure
from wheelsched.delivery.http.lookup import Lookup, ThreadedLookup
from wheelsched.delivery.http.pool import CLOSING_S, Pool
from wheelsched.delivery.http.request import assemble, prepare
from wheelsched.delivery.http.response import Answer, judge
from wheelsched.delivery.http.route import HttpRoute, RouteTable
from wheelsched.ports import Callback, Prepared, Route, RunOwner
from wheelsched.ports.work import Attempted
from wheelsched.values.duration import SECOND


class Sending(Struct, frozen=True, kw_only=True, gc=False):
    """A request to send, and the function that reads its response."""

    route: HttpRoute
    content: bytes
    most_bytes: int
    deadline_s: float
    begin: Callable[[], bool]
    read: Callable[[Answer], list[Outcome] | None]


class HttpDispatcher(Closing):
    """A `Dispatcher` for the running loop. `now_us` is the database's clock."""

    def __init__(
        self,
        config: DispatchConfig,
        now_us: Callable[[], int],
        *,
        lookup: Lookup | None = None,
    ) -> None:
        self._config = config
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        self._routes = RouteTable(config.egress.rules)
        self._names = DnsCache(
            lookup or ThreadedLookup(),
            most=config.lookup_threads,
            timeout_ms=config.connect_timeout_ms,
        )
        self._dialer = Dialer(config, self._names)
        self._pool = Pool(config, self._dialer.dial)
        self._waiting: set[asyncio.Task[list[Outcome] | None]] = set()  # for a connection

    async def close(self) -> None:
        """Close all connections. Requests in flight fail."""
        await self._pool.close()
        if self._waiting:
            await asyncio.wait(self._waiting, timeout=CLOSING_S)
        await self._names.close()

    def serve(self, owner: RunOwner | None) -> None:
        """Do nothing: every outcome is a response."""

    def cancel(self, tenant_id: UUID, attempts: Sequence[Attempted]) -> None:
        """Do nothing: a callback cannot be stopped."""

    def avoid(self, listeners: Collection[OwnListener]) -> None:
        self._dialer.guard.avoid(listeners)

    def route(self, tenant_id: UUID, target: Target) -> HttpRoute:
        assert isinstance(target, HttpTarget)
        return self._routes.get(tenant_id, target)

    def prepare(self, route: Route, callback: Callback) -> Prepared:
        assert isinstance(route, HttpRoute)
        return prepare(route, callback)

    def send(
        self, route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]
    ) -> asyncio.Future[list[Outcome] | None]:
        assert isinstance(route, HttpRoute)
        if route.refusal is not None:
            return self._promise([Rejected(error=route.refusal)] * len(batch))
        request = assemble(route, batch, self._now_us())
        most_bytes = self._config.answer_bytes
        if route.batch > 1:
            most_bytes += self._config.answer_bytes_per_run * len(batch)
        sending = Sending(
            route=route,
            content=request.content,
            most_bytes=most_bytes,
            deadline_s=self._loop.time() + request.timeout_us / SECOND,
            begin=begin,
            read=lambda answer: judge(route, batch, answer, self._now_us()),
        )
        connection = self._take(route)
        if connection is not None:
            return self._ask(connection, sending) or self._promise(None)
        waiting = self._loop.create_task(self._send_later(sending))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        return waiting

    async def _send_later(self, sending: Sending) -> list[Outcome] | None:
        """Send as soon as there is a connection."""
        connection = await self._connect(sending)
        if isinstance(connection, Answer):
            return sending.read(connection)
        asked = self._ask(connection, sending)
        return None if asked is None else await asked

    def _ask(
        self, connection: Connection, sending: Sending
    ) -> asyncio.Future[list[Outcome] | None] | None:
        """Send now, unless `begin` refuses."""
        if not sending.begin():
            self._pool.release(connection)
            return None
        return connection.ask(sending.content, sending.most_bytes, sending.deadline_s, sending.read)

    def _promise(self, given: list[Outcome] | None) -> asyncio.Future[list[Outcome] | None]:
        promise: asyncio.Future[list[Outcome] | None] = self._loop.create_future()
        promise.set_result(given)
        return promise

    def _take(self, route: HttpRoute) -> Connection | None:
        """An idle connection that is still open, as far as the kernel knows.

        A worker may close an idle connection while the request is on its way. It is unknown whether
        it has read the request, so the attempt has failed and the retry policy applies.
        """
        while (connection := self._pool.take(route)) is not None:
            if connection.is_quiet:
                return connection
            connection.end()
        return None

    async def _connect(self, sending: Sending) -> Connection | Answer:
        """A new connection, or one that became free in the meantime."""
        while True:
            connection = self._take(sending.route) or await self._open(sending)
            if isinstance(connection, Answer) or not connection.is_reused or connection.is_quiet:
                return connection
            connection.end()

    async def _open(self, sending: Sending) -> Connection | Answer:
        try:
            return await self._pool.open(sending.route, sending.deadline_s)
        except TimeoutError:
            return Answer(status=TransportFailure.TIMEOUT)
        except Exception as error:  # noqa: BLE001 - every failure is an outcome
            return explain_failure(error)
