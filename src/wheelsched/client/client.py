"""The async client: a method for every call of the API.

Invariant: methods give structs of `wire` and raise `ApiError`s, nothing else. Lists are read page
by page as they are iterated.
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
    """Part of a list."""

    @property
    def items(self) -> Iterable[Item_co]: ...
    @property
    def next_cursor(self) -> str | None: ...


class Client(Closing):
    """The API at an address, in the name of a token; without one where it asks for none.

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
        """The API of WHEELSCHED_URL, in the name of WHEELSCHED_TOKEN."""
        url = os.environ.get("WHEELSCHED_URL") or DEFAULT_URL
        return cls(url, os.environ.get("WHEELSCHED_TOKEN") or None, config=config)

    async def close(self) -> None:
        """Closes every connection."""
        await self._transport.close()

    async def create_job(self, job: AnyJob) -> JobAnswer:
        """Registers a job."""
        return await self._transport.send(calls.create_job(job))

    async def create_jobs(
        self, jobs: Iterable[AnyJob], *, chunk: int = CHUNK
    ) -> AsyncIterator[BulkAnswer]:
        """Registers many jobs, `chunk` at a time, and gives what became of each chunk."""
        for call in calls.create_jobs(jobs, chunk):
            yield await self._transport.send(call)

    async def get_job(self, job_id: UUID) -> JobAnswer:
        """A job."""
        return await self._transport.send(calls.get_job(job_id))

    def list_jobs(
        self,
        *,
        state: JobState | None = None,
        name: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> AsyncIterator[JobAnswer]:
        """Jobs, in the order of their names."""
        return _items(
            lambda cursor: self._transport.send(calls.list_jobs(state, name, tags or {}, cursor))
        )

    async def update_job(
        self, job_id: UUID, changes: JobChanges, *, version: int | None = None
    ) -> JobAnswer:
        """Changes a job; with `version`, only that one, or `EditedMeanwhile`."""
        return await self._transport.send(calls.update_job(job_id, changes, version))

    async def delete_job(self, job_id: UUID, *, version: int | None = None) -> JobAnswer | None:
        """Deletes a job, and gives it as it was; None where that answer was lost."""
        return await self._transport.send(calls.delete_job(job_id, version))

    async def pause_job(self, job_id: UUID) -> JobAnswer:
        """Stops the schedule of a job; what is in flight goes on."""
        return await self._transport.send(calls.pause_job(job_id))

    async def resume_job(self, job_id: UUID, start: ResumeFrom = ResumeFrom.NOW) -> JobAnswer:
        """Starts the schedule of a job again, from now or from where it was paused."""
        return await self._transport.send(calls.resume_job(job_id, start))

    async def trigger_job(self, job_id: UUID, payload: Any = UNSET) -> RequestedAnswer:
        """Runs a job now, beside its schedule; with a payload of its own, where one is given."""
        return await self._transport.send(calls.trigger_job(job_id, payload))

    async def backfill_job(
        self, job_id: UUID, since: datetime, until: datetime, *, preview: bool = False
    ) -> RequestedAnswer:
        """Runs the due times of a range in the past; with `preview`, only counts them."""
        call = calls.backfill_job(job_id, since, until, preview=preview)
        return await self._transport.send(call)

    async def next_times(self, job_id: UUID, count: int = 10) -> NextAnswer:
        """The coming due times of a job."""
        return await self._transport.send(calls.next_times(job_id, count))

    async def explain(self, job_id: UUID, at: datetime) -> ExplainAnswer:
        """Why a job did, or did not, fire at a time."""
        return await self._transport.send(calls.explain(job_id, at))

    async def preview(self, job: AnyJob) -> PreviewAnswer:
        """What a job would do. Nothing is written."""
        return await self._transport.send(calls.preview(job))

    def list_runs(self, job_id: UUID) -> AsyncIterator[RunAnswer]:
        """The runs of a job, latest first."""
        return _items(lambda cursor: self._transport.send(calls.list_runs(job_id, cursor)))

    def list_latest_runs(
        self,
        *,
        state: RunState | None = None,
        job_id: UUID | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[RunAnswer]:
        """The runs of all jobs due in a window of time, latest first; by default the last hour."""
        return _items(
            lambda cursor: self._transport.send(
                calls.list_latest_runs(state, job_id, since, until, cursor)
            )
        )

    async def get_run(self, run_id: str) -> RunAnswer:
        """A run, with every attempt."""
        return await self._transport.send(calls.get_run(run_id))

    async def cancel_run(self, run_id: str) -> CancelAnswer:
        """Ends a live run, and says whether that was in time."""
        return await self._transport.send(calls.cancel_run(run_id))

    async def retry_run(self, run_id: str) -> RunAnswer:
        """Tries a dead or cancelled run again."""
        return await self._transport.send(calls.retry_run(run_id))

    async def heartbeat(self, run_id: str, token: int) -> None:
        """Says that a worker is at it; `StaleToken` when it should not be."""
        await self._transport.send(calls.heartbeat(run_id, token))

    async def complete(self, run_id: str, token: int) -> RunAnswer:
        """Says that a worker did it."""
        return await self._transport.send(calls.complete(run_id, token))

    async def fail(
        self, run_id: str, token: int, error: str = "", *, retry: bool = True
    ) -> RunAnswer:
        """Says that a worker could not do it; without `retry`, that it never will."""
        return await self._transport.send(calls.fail(run_id, token, error, retry=retry))

    def list_dead(
        self,
        *,
        job_id: UUID | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[RunAnswer]:
        """The runs that are out of attempts, oldest first."""
        return _items(
            lambda cursor: self._transport.send(calls.list_dead(job_id, since, until, cursor))
        )

    async def redrive(self, request: RedriveRequest | None = None) -> RequestedAnswer:
        """Puts dead runs in line again."""
        return await self._transport.send(calls.redrive(request or RedriveRequest()))

    async def list_shards(self) -> ShardsAnswer:
        """The shards and what they own."""
        return await self._transport.send(calls.list_shards())

    async def create_tenant(self, request: TenantRequest) -> TenantAnswer:
        """Makes a tenant; its secret is in this answer only."""
        made = await self._transport.send(calls.create_tenant(request))
        if made.secret is None:
            raise SecretLost(
                f"the tenant {made.tenant_id} was made, but the answer with its secret was lost: "
                "make another secret for it with `wheelsched tenant rotate-secret`"
            )
        return made

    async def update_tenant(self, tenant_id: UUID, changes: TenantChanges) -> TenantAnswer:
        """Changes the name, the weight or the quotas of a tenant."""
        return await self._transport.send(calls.update_tenant(tenant_id, changes))

    async def rotate_secret(
        self, tenant_id: UUID, request: RotateRequest | None = None
    ) -> TenantAnswer:
        """Makes a secret beside the one before it; its text is in this answer only."""
        request = request or RotateRequest()
        made = await self._transport.send(calls.rotate_secret(tenant_id, request))
        if made.secret is None and not request.finish:
            raise SecretLost(
                f"the tenant {made.tenant_id} has a new secret, but the answer with it was lost: "
                "rotate once more"
            )
        return made

    def list_tenants(self) -> AsyncIterator[TenantAnswer]:
        """All tenants."""
        return _items(lambda cursor: self._transport.send(calls.list_tenants(cursor)))

    async def create_token(self, request: TokenRequest) -> TokenAnswer:
        """Makes a token; its text is in this answer only."""
        made = await self._transport.send(calls.create_token(request))
        if made.token is None:
            raise SecretLost(
                f"the token {made.token_id} was made, but the answer with its text was lost: "
                "revoke it, and make another"
            )
        return made

    def list_tokens(self, tenant_id: UUID | None = None) -> AsyncIterator[TokenAnswer]:
        """The tokens of a tenant; of the caller's own when none is named."""
        return _items(lambda cursor: self._transport.send(calls.list_tokens(tenant_id, cursor)))

    async def revoke_token(self, token_id: str) -> TokenAnswer:
        """Ends a token."""
        return await self._transport.send(calls.revoke_token(token_id))


async def _items(read: Callable[[str | None], Awaitable[Page[Item]]]) -> AsyncIterator[Item]:
    """The items of all pages."""
    cursor: str | None = None
    while True:
        page = await read(cursor)
        for item in page.items:
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
