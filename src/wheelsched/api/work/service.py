"""What workers that pull may do, independent of their protocol; start reading here.

Invariant: all protocols share these claims, reports and streams, so a run that was handed out by
one can be reported by another. Without a `WorkSource` every call raises `WorkUnavailable`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from uuid import UUID

from wheelsched.api.environment import Environment
from wheelsched.api.http.access_control import AccessControl
from wheelsched.api.http.authentication import Requester
from wheelsched.api.work.claims import Claimed, ClaimKey, Claims, Wanted
from wheelsched.api.work.reports import Reports
from wheelsched.api.work.stream import StreamConnection
from wheelsched.api.work.streams import Streams
from wheelsched.config import ApiConfig
from wheelsched.errors import WorkUnavailable
from wheelsched.ports.work import QueueState
from wheelsched.wire.queue import (
    HeartbeatAnswer,
    HeartbeatItem,
    OutcomeAnswer,
    OutcomeItem,
    ReturnedItem,
)


class WorkService:
    """Claims, reports and streams of workers."""

    def __init__(self, environment: Environment, config: ApiConfig, access: AccessControl) -> None:
        self._source = source = environment.work
        if source is not None:
            self._reports = Reports(source)
            self._claims = Claims(source, self._reports.keep_lease, environment.now_us)
            self._streams = Streams(source, self._reports, environment, access, config)

    async def claim(self, key: ClaimKey, wanted: Wanted) -> Claimed:
        """Runs for a worker; none if the wait is over."""
        self.require()
        return await self._claims.claim(key, wanted)

    async def finish(self, tenant_id: UUID, items: Sequence[OutcomeItem]) -> list[OutcomeAnswer]:
        """Reports how attempts ended."""
        self.require()
        return await self._reports.finish(tenant_id, items)

    async def heartbeat(
        self, tenant_id: UUID, items: Sequence[HeartbeatItem]
    ) -> list[HeartbeatAnswer]:
        """Reports that runs are still being processed."""
        self.require()
        return await self._reports.heartbeat(tenant_id, items)

    async def give_back(
        self,
        tenant_id: UUID,
        items: Sequence[ReturnedItem],
        is_theirs: Callable[[ClaimKey], bool],
    ) -> list[OutcomeAnswer]:
        """Returns runs that the worker has not begun, if `is_theirs` says so of their claim.

        A run that is given back keeps its token, so the token does not show who has it now.
        """
        self.require()
        release = partial(self._claims.release, is_theirs)
        return self._reports.give_back(tenant_id, items, release)

    async def stream(
        self, connection: StreamConnection, request: Requester, tenant_id: UUID
    ) -> None:
        """Serves a stream until it ends."""
        self.require()
        await self._streams.serve(connection, request, tenant_id)

    async def queues(self, tenant_id: UUID) -> list[QueueState]:
        """The queues of a tenant."""
        if self._source is None:
            raise WorkUnavailable
        return await self._source.queues(tenant_id)

    @property
    def is_available(self) -> bool:
        """Whether this process hands out runs."""
        return self._source is not None

    def require(self) -> None:
        """Raises `WorkUnavailable` if this process hands out no runs."""
        if self._source is None:
            raise WorkUnavailable

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Looks after the streams for the duration of the block."""
        if self._source is None:
            yield
            return
        task = asyncio.create_task(self._streams.look_after())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def stop(self) -> None:
        """Answers all claims, and ends all streams."""
        if self._source is not None:
            await self._claims.stop()
            await self._streams.stop()
