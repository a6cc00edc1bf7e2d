"""The async client: one method per operation of the API.

Invariant: methods return structs of `wire` and raise only `ApiError`. Lists fetch their pages while
they are iterated.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from random import Random
from typing import Any, Final, Protocol, Self, TypeVar
from uuid import UUID

from msgspec import UNSET

from wheelsched.client import calls
from wheelsched.client.calls import AnyJob
from wheelsched.client.fields import JobChanges
from wheelsched.client.transport import Transport
from wheelsched.closing import Closing
from wheelsched.config import ClientConfig
from wheelsched.core.model import JobState, RunState
from wheelsched.errors import SecretLost
from wheelsched.ports import Clock
from wheelsched.wire.job import JobAnswer
from wheelsched.wire.jobs import BulkAnswer, ResumeFrom
from wheelsched.wire.queue import QueuesAnswer
from wheelsched.wire.run import CancelAnswer, RedriveRequest, RequestedAnswer, RunAnswer
from wheelsched.wire.schedule import ExplainAnswer, NextAnswer, PreviewAnswer
from wheelsched.wire.shard import ShardsAnswer
from wheelsched.wire.tenant import (
    RotateRequest,
    TenantAnswer,
    TenantChanges,
    TenantRequest,
    TokenAnswer,
    TokenRequest,
)

DEFAULT_URL: Final = "http://127.0.0.1:8420"
CHUNK: Final = 2_000

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class Page(Protocol[Item_co]):
    """One page of a list."""

    @property
    def items(self) -> Iterable[Item_co]: ...
    @property
    def next_cursor(self) -> str | None: ...


class Client(Closing):
    """An async client of the API at `url`. The token may be omitted if the API needs none.

    ```python
    async with Client.from_environment() as client:
        job = await client.create_job({"name": …, "schedule": …, "target": {"url": …}})
    ```
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        config: ClientConfig | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._transport = Transport(url, token, config, clock, random)

    @classmethod
    def from_environment(cls, config: ClientConfig | None = None) -> Self:
        """A client for WHEELSCHED_URL and WHEELSCHED_TOKEN."""
        url = os.environ.get("WHEELSCHED_URL") or DEFAULT_URL
        return cls(url, os.environ.get("WHEELSCHED_TOKEN") or None, config=config)

    async def close(self) -> None:
        """Closes all connections."""
        await self._transport.close()

    async def create_job(self, job: AnyJob) -> JobAnswer:
        """Registers a job."""
        return await self._transport.send(calls.create_job(job))

    async def create_jobs(
        self, jobs: Iterable[AnyJob], *, chunk: int = CHUNK
    ) -> AsyncIterator[BulkAnswer]:
        """Registers many jobs, `chunk` at a time, and yields the result of each chunk."""
        for call in calls.create_jobs(jobs, chunk):
            yield await self._transport.send(call)

    async def get_job(self, job_id: UUID) -> JobAnswer:
        """Gets a job."""
        return await self._transport.send(calls.get_job(job_id))

    def list_jobs(
        self,
        *,
        state: JobState | None = None,
        name: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> AsyncIterator[JobAnswer]:
        """Lists jobs by name."""
        return _items(
            lambda cursor: self._transport.send(calls.list_jobs(state, name, tags or {}, cursor))
        )

    async def update_job(
        self, job_id: UUID, changes: JobChanges, *, version: int | None = None
    ) -> JobAnswer:
        """Changes a job; with `version`, raises `EditedMeanwhile` if the job has another
        version."""
        return await self._transport.send(calls.update_job(job_id, changes, version))

    async def delete_job(self, job_id: UUID, *, version: int | None = None) -> JobAnswer | None:
        """Deletes a job and returns it as it was, or None if that response was lost."""
        return await self._transport.send(calls.delete_job(job_id, version))

    async def pause_job(self, job_id: UUID) -> JobAnswer:
        """Pauses the schedule of a job; runs in flight continue."""
        return await self._transport.send(calls.pause_job(job_id))

    async def resume_job(self, job_id: UUID, start: ResumeFrom = ResumeFrom.NOW) -> JobAnswer:
        """Resumes the schedule of a job, from now or from the time it was paused."""
        return await self._transport.send(calls.resume_job(job_id, start))

    async def trigger_job(self, job_id: UUID, payload: Any = UNSET) -> RequestedAnswer:
        """Runs a job now, in addition to its schedule; `payload` replaces the job's payload for
        this run."""
        return await self._transport.send(calls.trigger_job(job_id, payload))

    async def backfill_job(
        self, job_id: UUID, since: datetime, until: datetime, *, preview: bool = False
    ) -> RequestedAnswer:
        """Runs the due times of a past range; with `preview`, only counts them."""
        call = calls.backfill_job(job_id, since, until, preview=preview)
        return await self._transport.send(call)

    async def next_times(self, job_id: UUID, count: int = 10) -> NextAnswer:
        """Gets the next due times of a job."""
        return await self._transport.send(calls.next_times(job_id, count))

    async def explain(self, job_id: UUID, at: datetime) -> ExplainAnswer:
        """Explains why a job did or did not fire at a given time."""
        return await self._transport.send(calls.explain(job_id, at))

    async def preview(self, job: AnyJob) -> PreviewAnswer:
        """Validates a job and shows what it would do. Nothing is written."""
        return await self._transport.send(calls.preview(job))

    def list_runs(self, job_id: UUID) -> AsyncIterator[RunAnswer]:
        """Lists the runs of a job, latest first."""
        return _items(lambda cursor: self._transport.send(calls.list_runs(job_id, cursor)))

    def list_latest_runs(
        self,
        *,
        state: RunState | None = None,
        job_id: UUID | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[RunAnswer]:
        """Lists the runs of all jobs in a time window, latest first; by default the last hour."""
        return _items(
            lambda cursor: self._transport.send(
                calls.list_latest_runs(state, job_id, since, until, cursor)
            )
        )

    async def get_run(self, run_id: str) -> RunAnswer:
        """Gets a run with all its attempts."""
        return await self._transport.send(calls.get_run(run_id))

    async def cancel_run(self, run_id: str) -> CancelAnswer:
        """Cancels a live run and tells whether it was cancelled before it was sent."""
        return await self._transport.send(calls.cancel_run(run_id))

    async def retry_run(self, run_id: str) -> RunAnswer:
        """Retries a dead or cancelled run."""
        return await self._transport.send(calls.retry_run(run_id))

    async def heartbeat(self, run_id: str, token: int) -> None:
        """Reports that the worker is still processing the run; raises `StaleToken` if it must
        stop."""
        await self._transport.send(calls.heartbeat(run_id, token))

    async def complete(self, run_id: str, token: int) -> RunAnswer:
        """Reports that the run succeeded."""
        return await self._transport.send(calls.complete(run_id, token))

    async def fail(
        self, run_id: str, token: int, error: str = "", *, retry: bool = True
    ) -> RunAnswer:
        """Reports that the run failed; `retry=False` rules out another attempt."""
        return await self._transport.send(calls.fail(run_id, token, error, retry=retry))

    def list_dead(
        self,
        *,
        job_id: UUID | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[RunAnswer]:
        """Lists dead runs, oldest first."""
        return _items(
            lambda cursor: self._transport.send(calls.list_dead(job_id, since, until, cursor))
        )

    async def redrive(self, request: RedriveRequest | None = None) -> RequestedAnswer:
        """Retries dead runs."""
        return await self._transport.send(calls.redrive(request or RedriveRequest()))

    async def list_shards(self) -> ShardsAnswer:
        """Lists the shards and their partitions."""
        return await self._transport.send(calls.list_shards())

    async def list_queues(self) -> QueuesAnswer:
        """Lists the queues with waiting runs or connected workers."""
        return await self._transport.send(calls.list_queues())

    async def create_tenant(self, request: TenantRequest) -> TenantAnswer:
        """Creates a tenant. Its secret is in this response only."""
        created = await self._transport.send(calls.create_tenant(request))
        if created.secret is None:
            raise SecretLost(
                f"tenant {created.tenant_id} was created, but the response with its secret was "
                "lost; create a new secret with `wheelsched tenant rotate-secret`"
            )
        return created

    async def update_tenant(self, tenant_id: UUID, changes: TenantChanges) -> TenantAnswer:
        """Changes the name, weight or quotas of a tenant."""
        return await self._transport.send(calls.update_tenant(tenant_id, changes))

    async def rotate_secret(
        self, tenant_id: UUID, request: RotateRequest | None = None
    ) -> TenantAnswer:
        """Adds a signing secret next to the current one. Its text is in this response only."""
        request = request or RotateRequest()
        created = await self._transport.send(calls.rotate_secret(tenant_id, request))
        if created.secret is None and not request.finish:
            raise SecretLost(
                f"tenant {created.tenant_id} has a new secret, but the response with it was lost; "
                "rotate again"
            )
        return created

    def list_tenants(self) -> AsyncIterator[TenantAnswer]:
        """Lists all tenants."""
        return _items(lambda cursor: self._transport.send(calls.list_tenants(cursor)))

    async def create_token(self, request: TokenRequest) -> TokenAnswer:
        """Creates a token. Its text is in this response only."""
        created = await self._transport.send(calls.create_token(request))
        if created.token is None:
            raise SecretLost(
                f"token {created.token_id} was created, but the response with its text was lost; "
                "revoke it and create another"
            )
        return created

    def list_tokens(self, tenant_id: UUID | None = None) -> AsyncIterator[TokenAnswer]:
        """Lists the tokens of a tenant, by default the caller's own."""
        return _items(lambda cursor: self._transport.send(calls.list_tokens(tenant_id, cursor)))

    async def revoke_token(self, token_id: str) -> TokenAnswer:
        """Revokes a token."""
        return await self._transport.send(calls.revoke_token(token_id))


async def _items(read: Callable[[str | None], Awaitable[Page[Item]]]) -> AsyncIterator[Item]:
    """Yields the items of all pages."""
    cursor: str | None = None
    while True:
        page = await read(cursor)
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
