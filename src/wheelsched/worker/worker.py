"""The worker: what a user of the SDK builds, and the only module of it that puts parts together.

Invariant: a worker takes requests until it is stopped, and its stop ends everything it began.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from aiohttp import web

from wheelsched.clock import SystemClock
from wheelsched.closing import Closing
from wheelsched.config import WorkerConfig
from wheelsched.errors import HandlerTaken, InvalidHandler, quoted
from wheelsched.ports import Clock
from wheelsched.worker import on_aiohttp, on_asgi, on_wsgi
from wheelsched.worker.accepted import AcceptedRuns, Reports
from wheelsched.worker.attempt import Equipment
from wheelsched.worker.crew import Crew
from wheelsched.worker.deduplication import Deduplication, MemoryOnce
from wheelsched.worker.fencing import FencingCheck
from wheelsched.worker.handler import Handler
from wheelsched.worker.receiver import Receiver
from wheelsched.worker.signature import Verifier
from wheelsched.worker.testing import TestClient

Function = TypeVar("Function", bound=Callable[..., object])


class WallClock(Clock, Protocol):
    """A clock that also knows the time of day."""

    def wall_us(self) -> int:
        """The time of day, in microseconds since 1970."""


class Worker:
    """Receives the callbacks of jobs and calls their handlers.

    `secrets` are those of the tenant, `whsec_…`; two while they are rotated. `deduplicate` says
    where it is kept which runs are done. `client` is a `wheelsched.client.Client`: with it, runs
    may go on after their answer.
    """

    def __init__(
        self,
        secrets: Sequence[str],
        *,
        deduplicate: Deduplication | None = None,
        client: Reports | None = None,
        config: WorkerConfig | None = None,
        clock: WallClock | None = None,
    ) -> None:
        config = config or WorkerConfig()
        clock = clock or SystemClock()
        self._config = config
        self._client = client
        self._wall_us = clock.wall_us
        self._handlers: dict[str | None, Handler] = {}
        equipment = Equipment(
            deduplicate or MemoryOnce(clock=clock),
            FencingCheck(),
            ThreadPoolExecutor(config.threads, thread_name_prefix="wheelsched-worker"),
            clock,
        )
        accepted = None if client is None else AcceptedRuns(client, clock, config)
        self._crew = Crew(equipment, config, accepted)
        verifier = Verifier(
            secrets, tolerance_us=config.tolerance_ms * 1_000, wall_us=clock.wall_us
        )
        self._secret = secrets[0]
        self.receiver = Receiver(verifier, self._handlers, self._crew, config.max_body_bytes)
        self.asgi = on_asgi.AsgiApplication(self.receiver, self.stop, self._read_timeout_s)
        self.wsgi = on_wsgi.WsgiApplication(self.receiver, self._stop_and_disconnect, config)

    def job(self, name: str | None = None, *, long: bool = False) -> Callable[[Function], Function]:
        """Decorates the handler of a job; without a name, of every job that has none of its own.

        A `long` one is answered with 202 as soon as it begins, heartbeats by itself, and its end
        is reported: the job's timeout bounds its silence and not its length.
        """
        if name in self._handlers:
            raise HandlerTaken(
                f"the worker has a handler for {quoted(name or 'every job')} already"
            )
        if long and self._client is None:
            raise InvalidHandler("a long job is reported by REST: give the Worker a client")

        def register(function: Function) -> Function:
            self._handlers[name] = Handler(function, is_long=long)
            return function

        return register

    def test_client(self) -> TestClient:
        """Delivers callbacks to the handlers in tests, without a server or a scheduler."""
        return TestClient(self.receiver, self._secret, self._wall_us)

    def routes(self, path: str = "/") -> list[web.RouteDef]:
        """Routes for an aiohttp application, which calls `stop` when it shuts down."""

        async def handle(request: web.Request) -> web.Response:
            return await on_aiohttp.handle(self.receiver, request, self._read_timeout_s)

        return [web.route("*", path, handle)]

    def application(self, path: str = "/") -> web.Application:
        """An aiohttp application of its own: `web.run_app(worker.application())`."""

        async def stop(_: web.Application) -> None:
            await self.stop()

        application = web.Application()
        application.add_routes(self.routes(path))
        application.on_shutdown.append(stop)
        return application

    def mount(self, app: on_asgi.Routes, path: str = "/") -> None:
        """Serve callbacks at a path of a FastAPI or Starlette application, which calls `stop`.

        With and without a slash at its end: `app.mount` would answer the path without one with
        a redirect, and callbacks follow none.
        """
        on_asgi.mount(self.asgi, app, path)

    async def stop(self) -> None:
        """Takes on no more, waits for what is at work, and hands back what does not end in time."""
        await self._crew.stop()

    async def _stop_and_disconnect(self) -> None:
        """Stop where the loop ends too: a client's connections belong to its loop."""
        await self.stop()
        client: object = self._client
        if isinstance(client, Closing):
            await client.close()

    @property
    def _read_timeout_s(self) -> float:
        return self._config.read_timeout_ms / 1_000
