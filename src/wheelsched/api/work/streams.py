"""All streams of this process: liveness, tokens, and how they end.

Invariant: a stream whose token was revoked ends within `token_cache_ms`. When the process stops,
each worker is told to go elsewhere, and has time to report what it has finished.
"""

import asyncio
from typing import Final
from uuid import UUID

import structlog
from aiohttp import hdrs

from wheelsched.api.environment import Environment
from wheelsched.api.http.access_control import AccessControl
from wheelsched.api.http.authentication import Requester
from wheelsched.api.work.reports import Reports
from wheelsched.api.work.session import Session
from wheelsched.api.work.stream import SECOND_NS, StreamConnection, WorkStream
from wheelsched.config import ApiConfig
from wheelsched.errors import ApiStopping, RequestRefused, StoreError
from wheelsched.ports.work import WorkSource
from wheelsched.wire.tenant import Scope

log = structlog.get_logger("wheelsched.api")

LEAVE_SHARE: Final = 0.8  # of the time to stop, for workers to leave


class Streams:
    """Serves streams of every protocol."""

    def __init__(
        self,
        source: WorkSource,
        reports: Reports,
        environment: Environment,
        access: AccessControl,
        config: ApiConfig,
    ) -> None:
        self._source = source
        self._reports = reports
        self._environment = environment
        self._access = access
        self._leave_s = config.stop_timeout_ms / 1_000 * LEAVE_SHARE
        self._check_ns = config.token_cache_ms * 1_000_000
        self._streams: dict[WorkStream, Requester] = {}
        self._is_empty = asyncio.Event()

    async def serve(
        self, connection: StreamConnection, request: Requester, tenant_id: UUID
    ) -> None:
        """Serves one stream until it ends."""
        session = Session(self._source, tenant_id)
        stream = WorkStream(connection, session, self._reports, tenant_id, self._environment.clock)
        self._streams[stream] = request
        self._is_empty.clear()
        try:
            await stream.run()
        finally:
            del self._streams[stream]
            if not self._streams:
                self._is_empty.set()

    async def look_after(self) -> None:
        """Checks that the workers are alive and that their tokens are valid, until cancelled."""
        clock = self._environment.clock
        checked_ns = clock.now_ns()
        while True:
            await clock.sleep(SECOND_NS)
            for stream in list(self._streams):
                stream.tick()
            if clock.now_ns() - checked_ns >= self._check_ns:
                checked_ns = clock.now_ns()
                await self._check_tokens()

    async def stop(self) -> None:
        """Tells all workers to go elsewhere, and ends the streams of those that stay."""
        streams = list(self._streams)
        if not streams:
            return
        stopping = ApiStopping()
        await asyncio.gather(*(stream.leave(str(stopping)) for stream in streams))
        try:
            async with asyncio.timeout(self._leave_s):
                await self._is_empty.wait()
        except TimeoutError:
            for stream in list(self._streams):
                stream.end(stopping)

    async def _check_tokens(self) -> None:
        """Ends the streams whose token was revoked."""
        by_token: dict[str | None, list[WorkStream]] = {}
        for stream, request in self._streams.items():
            by_token.setdefault(request.headers.get(hdrs.AUTHORIZATION), []).append(stream)
        for streams in by_token.values():
            held = self._streams.get(streams[0])
            if held is None:
                continue  # it has ended meanwhile; the others are checked in the next round
            try:
                await self._access.check(held, Scope.WORK)
            except RequestRefused as error:
                for stream in streams:
                    stream.end(error)
            except StoreError as error:
                log.warning("tokens.unchecked", error=type(error).__name__)
