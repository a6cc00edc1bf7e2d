"""The dispatcher over HTTP: stage *fire* sends through it.

Invariant: whatever a worker does, `send` gives an outcome for each callback, ends by the timeout
of its batch, and holds no more of the answer than its bound. Nothing of one request reaches
another: no cookies, no redirects, no proxies or credentials from the environment.

At the due moment a single callback costs one write: its request is bytes, and its connection is
usually there. A task, a timer or a scope of its own would cost more than the request itself.
"""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from wheelsched.closing import Closing
from wheelsched.config import DispatchConfig
from wheelsched.core.duration import SECOND
from wheelsched.core.model import Target
from wheelsched.core.outcome import Outcome, Rejected, TransportFailure
from wheelsched.dispatch.answer import Answer, judge
from wheelsched.dispatch.connection import Connection
from wheelsched.dispatch.dial import Dialer
from wheelsched.dispatch.failure import explain_failure
from wheelsched.dispatch.lookup import Lookup, ThreadedLookup
from wheelsched.dispatch.names import Names
from wheelsched.dispatch.pool import Pool
from wheelsched.dispatch.request import assemble, prepare
from wheelsched.dispatch.route import HttpRoute, RouteTable
from wheelsched.ports import Callback, Prepared, Route


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
        self._pool = Pool(config, Dialer(config, self._names).dial)

    async def close(self) -> None:
        """Closes every connection; what is being sent fails."""
        await self._pool.close()
        await self._names.close()

    def route(self, tenant_id: UUID, target: Target) -> HttpRoute:
        return self._routes.get(tenant_id, target)

    def prepare(self, route: Route, callback: Callback) -> Prepared:
        assert isinstance(route, HttpRoute)
        return prepare(route, callback)

    async def send(
        self, route: Route, batch: Sequence[Prepared], begin: Callable[[], bool]
    ) -> list[Outcome] | None:
        assert isinstance(route, HttpRoute)
        if route.refusal is not None:
            return [Rejected(error=route.refusal)] * len(batch)
        request = assemble(route, batch, self._now_us())
        most_bytes = self._config.answer_bytes
        if route.target.batch > 1:
            most_bytes += self._config.answer_bytes_per_run * len(batch)
        deadline_s = self._loop.time() + request.timeout_us / SECOND
        connection = await self._connect(route, deadline_s)
        if isinstance(connection, Answer):
            return judge(route, batch, connection, self._now_us())
        if not begin():
            self._pool.rest(connection)
            return None
        asked = connection.ask(request.content, most_bytes, deadline_s)
        try:
            answer = await asked
        except asyncio.CancelledError:
            connection.abandon(asked)
            raise
        return judge(route, batch, answer, self._now_us())

    async def _connect(self, route: HttpRoute, deadline_s: float) -> Connection | Answer:
        """A connection that is open, as far as the kernel knows: one that was kept, or a new one.

        A worker that is about to close an idle one may cross the request. Nobody knows then what
        it has read, so that request has failed, and the retry policy says what follows.
        """
        while True:
            connection = self._pool.take(route) or await self._open(route, deadline_s)
            if isinstance(connection, Answer) or not connection.is_kept or connection.is_quiet:
                return connection
            connection.end()

    async def _open(self, route: HttpRoute, deadline_s: float) -> Connection | Answer:
        try:
            return await self._pool.open(route, deadline_s)
        except TimeoutError:
            return Answer(status=TransportFailure.TIMEOUT)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run has an outcome
            return explain_failure(error)
