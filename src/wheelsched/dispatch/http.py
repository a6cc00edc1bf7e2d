"""The dispatcher over HTTP: stage *fire* sends through it.

Invariant: whatever a worker does, `send` gives an outcome for each callback, ends by the timeout
of its batch, and holds no more of the answer than its bound. Nothing of one request reaches
another: no cookies, no redirects, no proxies or credentials from the environment.

At the due moment a single callback costs one write: its request is bytes, and its connection is
usually there. A task, a timer or a scope of its own would cost more than the request itself.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from msgspec import Struct

from wheelsched.closing import Closing
from wheelsched.config import DispatchConfig
from wheelsched.core.duration import SECOND
from wheelsched.core.egress import OwnListener
from wheelsched.core.model import Target
from wheelsched.core.outcome import Outcome, Rejected, TransportFailure
from wheelsched.dispatch.answer import Answer, judge
from wheelsched.dispatch.connection import Connection
from wheelsched.dispatch.dial import Dialer
from wheelsched.dispatch.failure import explain_failure
from wheelsched.dispatch.lookup import Lookup, ThreadedLookup
from wheelsched.dispatch.names import Names
from wheelsched.dispatch.pool import CLOSING_S, Pool
from wheelsched.dispatch.request import assemble, prepare
from wheelsched.dispatch.route import HttpRoute, RouteTable
from wheelsched.ports import Callback, Prepared, Route


class Sending(Struct, frozen=True, kw_only=True, gc=False):
    """A request that is to be sent, and how its answer is read."""

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
        self._names = Names(
            lookup or ThreadedLookup(),
            most=config.lookup_threads,
            timeout_ms=config.connect_timeout_ms,
        )
        self._dialer = Dialer(config, self._names)
        self._pool = Pool(config, self._dialer.dial)
        self._waiting: set[asyncio.Task[list[Outcome] | None]] = set()  # for a connection

    async def close(self) -> None:
        """Closes every connection; what is being sent fails."""
        await self._pool.close()
        if self._waiting:
            await asyncio.wait(self._waiting, timeout=CLOSING_S)
        await self._names.close()

    def avoid(self, listeners: Collection[OwnListener]) -> None:
        self._dialer.guard.avoid(listeners)

    def route(self, tenant_id: UUID, target: Target) -> HttpRoute:
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
        if route.target.batch > 1:
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
        """Sends once there is a connection."""
        connection = await self._connect(sending)
        if isinstance(connection, Answer):
            return sending.read(connection)
        asked = self._ask(connection, sending)
        return None if asked is None else await asked

    def _ask(
        self, connection: Connection, sending: Sending
    ) -> asyncio.Future[list[Outcome] | None] | None:
        """Sends now, unless it is not to be sent any more."""
        if not sending.begin():
            self._pool.rest(connection)
            return None
        return connection.ask(sending.content, sending.most_bytes, sending.deadline_s, sending.read)

    def _promise(self, given: list[Outcome] | None) -> asyncio.Future[list[Outcome] | None]:
        promise: asyncio.Future[list[Outcome] | None] = self._loop.create_future()
        promise.set_result(given)
        return promise

    def _take(self, route: HttpRoute) -> Connection | None:
        """A connection that was kept and is open, as far as the kernel knows.

        A worker that is about to close an idle one may cross the request. Nobody knows then what
        it has read, so that request has failed, and the retry policy says what follows.
        """
        while (connection := self._pool.take(route)) is not None:
            if connection.is_quiet:
                return connection
            connection.end()
        return None

    async def _connect(self, sending: Sending) -> Connection | Answer:
        """A connection: a new one, or one that became free meanwhile."""
        while True:
            connection = self._take(sending.route) or await self._open(sending)
            if isinstance(connection, Answer) or not connection.is_kept or connection.is_quiet:
                return connection
            connection.end()

    async def _open(self, sending: Sending) -> Connection | Answer:
        try:
            return await self._pool.open(sending.route, sending.deadline_s)
        except TimeoutError:
            return Answer(status=TransportFailure.TIMEOUT)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run has an outcome
            return explain_failure(error)
