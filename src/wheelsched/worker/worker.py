"""The `Worker` of the SDK, which wires its parts together.

Invariant: a worker accepts requests until it is stopped, and stopping ends everything it started.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from secrets import token_bytes
from typing import Protocol, TypeVar

from aiohttp import web

from wheelsched.clock import SystemClock
from wheelsched.closing import Closing
from wheelsched.config import WorkerConfig
from wheelsched.errors import HandlerTaken, InvalidHandler, quoted
from wheelsched.ports import Clock
from wheelsched.wire.queue import ClaimedRun
from wheelsched.wire.secret import write_secret
from wheelsched.worker.accepted import AcceptedRuns, Reports
from wheelsched.worker.attempt import Resources
from wheelsched.worker.deduplication import Deduplication, MemoryOnce
from wheelsched.worker.executor import Executor
from wheelsched.worker.fencing import FencingCheck
from wheelsched.worker.frameworks import aiohttp as on_aiohttp
from wheelsched.worker.frameworks import asgi as on_asgi
from wheelsched.worker.frameworks import wsgi as on_wsgi
from wheelsched.worker.handler import Handler
from wheelsched.worker.pull.hands import Hands
from wheelsched.worker.pull.puller import (
    PullConfig,
    Puller,
    default_worker_id,
    read_queue_names,
    read_urls,
)
from wheelsched.worker.receiver import Receiver
from wheelsched.worker.signature import Verifier
from wheelsched.worker.testing import TestClient

Function = TypeVar("Function", bound=Callable[..., object])


class WallClock(Clock, Protocol):
    """A clock that also has wall-clock time."""

    def wall_us(self) -> int:
        """Wall-clock time in microseconds since 1970."""


class Worker:
    """Receives the runs of jobs and calls their handlers.

    `run` pulls runs of queues. `application`, `asgi` and `wsgi` serve callbacks, which need
    `secrets`: the secrets of the tenant, `whsec_…`; two of them during a rotation. `deduplicate`
    stores which runs are done, by default in memory. `client` is a `wheelsched.client.Client`,
    which is needed for long callbacks: they continue after a response of 202.
    """

    def __init__(
        self,
        secrets: Sequence[str] | None = None,
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
        self._clock = clock
        self._handlers: dict[str | None, Handler] = {}
        self._pullers: set[Puller] = set()
        self._resources = resources = Resources(
            deduplicate or MemoryOnce(clock=clock),
            FencingCheck(),
            ThreadPoolExecutor(config.threads, thread_name_prefix="wheelsched-worker"),
            clock,
        )
        accepted = None if client is None else AcceptedRuns(client, clock, config)
        self._executor = Executor(resources, config, accepted)
        self._serves_callbacks = secrets is not None
        if secrets is None:  # then no callback is genuine
            secrets = [write_secret(token_bytes(32))]
        verifier = Verifier(
            secrets, tolerance_us=config.tolerance_ms * 1_000, wall_us=clock.wall_us
        )
        self._secret = secrets[0]
        self.receiver = Receiver(verifier, self._handlers, self._executor, config.max_body_bytes)
        self.asgi = on_asgi.AsgiApplication(self.receiver, self.stop, self._read_timeout_s)
        self.wsgi = on_wsgi.WsgiApplication(self.receiver, self._stop_and_disconnect, config)

    def job(self, name: str | None = None, *, long: bool = False) -> Callable[[Function], Function]:
        """Decorate the handler of a job, or without a name, of all jobs without their own handler.

        A `long` handler is answered with 202 when it starts. The worker then sends heartbeats and
        reports the outcome, so the job's timeout limits the time between heartbeats and not the
        duration of the run.
        """
        if name in self._handlers:
            raise HandlerTaken(
                f"the worker already has a handler for {quoted(name or 'every job')}"
            )
        if long and self._client is None and self._serves_callbacks:
            raise InvalidHandler("long runs are reported by REST; pass a client to the Worker")

        def register(function: Function) -> Function:
            self._handlers[name] = Handler(function, is_long=long)
            return function

        return register

    async def run(
        self,
        url: str | Sequence[str],
        *,
        queues: str | Sequence[str],
        token: str | None = None,
        concurrency: int | None = None,
        worker_id: str | None = None,
    ) -> None:
        """Pull runs from queues of the API at `url` and call their handlers, until `stop`.

        `url` may be a list: the worker connects to one of them, and to another when that fails. At
        most `concurrency` runs are in hand at once. Raises `NotAuthenticated` or `NotAllowed` if
        the API refuses the token.
        """
        config = PullConfig(
            urls=read_urls(url),
            queues=read_queue_names(queues),
            token=token,
            worker_id=worker_id or default_worker_id(),
            stop_timeout_s=self._config.stop_timeout_ms / 1_000,
        )
        hands = self._make_hands(self._config.concurrency if concurrency is None else concurrency)
        puller = Puller(config, hands, self._clock)
        self._pullers.add(puller)
        try:
            await puller.run()
        finally:
            self._pullers.discard(puller)

    def test_client(self) -> TestClient:
        """A client for tests, which delivers runs without a server or a scheduler."""
        return TestClient(self.receiver, self._make_hands, self._secret, self._wall_us)

    def routes(self, path: str = "/") -> list[web.RouteDef]:
        """Routes for an aiohttp application. The application must call `stop` on shutdown."""

        async def handle(request: web.Request) -> web.Response:
            return await on_aiohttp.handle(self.receiver, request, self._read_timeout_s)

        return [web.route("*", path, handle)]

    def application(self, path: str = "/") -> web.Application:
        """A complete aiohttp application: `web.run_app(worker.application())`."""

        async def stop(_: web.Application) -> None:
            await self.stop()

        application = web.Application()
        application.add_routes(self.routes(path))
        application.on_shutdown.append(stop)
        return application

    def mount(self, app: on_asgi.Routes, path: str = "/") -> None:
        """Serve callbacks at a path of a FastAPI or Starlette application.

        The application must call `stop` on shutdown. The path works with and without a trailing
        slash. `app.mount` would answer one of them with a redirect, which callbacks do not follow.
        """
        on_asgi.mount(self.asgi, app, path)

    async def stop(self) -> None:
        """Refuse new runs, wait for running ones, and cancel those that do not end in time.

        `run` returns when the runs that it pulled have ended and were reported.
        """
        await asyncio.gather(*(puller.stop() for puller in self._pullers))
        await self._executor.stop()

    def _make_hands(self, concurrency: int) -> Hands:
        return Hands(self._find_handler, self._resources, self._config, concurrency)

    def _find_handler(self, run: ClaimedRun) -> Handler | None:
        return self._handlers.get(run.job_name) or self._handlers.get(None)

    async def _stop_and_disconnect(self) -> None:
        """Stop, and close the client: its connections belong to the loop, which ends too."""
        await self.stop()
        client: object = self._client
        if isinstance(client, Closing):
            await client.close()

    @property
    def _read_timeout_s(self) -> float:
        return self._config.read_timeout_ms / 1_000
