"""The sync client: runs the async client on an event loop in a background thread.

Invariant: any number of threads may call at once, and each waits for its own response. The thread
starts with the first call, and again after a fork, because threads do not survive one.

Both clients share one implementation of connections, timeouts and retries.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Self, TypeVar
from uuid import UUID

from msgspec import UNSET

from wheelsched.client.calls import AnyJob
from wheelsched.client.client import CHUNK, DEFAULT_URL, Client
from wheelsched.client.fields import JobChanges
from wheelsched.config import ClientConfig
from wheelsched.core.model import JobState, RunState
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

Answer = TypeVar("Answer")
CLOSE_S: Final = 10.0


class LoopThread:
    """An event loop in a background thread."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="wheelsched-client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Runs a coroutine and returns its result; interrupting the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        self._loop.close()


class SyncClient:
    """`Client`, for code that is not async.

    ```python
    with SyncClient.from_environment() as client:
        job = client.create_job({"name": …, "schedule": …, "target": {"url": …}})
    ```
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        config: ClientConfig | None = None,
    ) -> None:
        self._make: Callable[[], Client] = lambda: Client(url, token, config=config)
        self._client = self._make()  # rejects an invalid URL or token at once
        self._thread: LoopThread | None = None
        self._starting = threading.Lock()

    @classmethod
    def from_environment(cls, config: ClientConfig | None = None) -> Self:
        """A client for WHEELSCHED_URL and WHEELSCHED_TOKEN."""
        url = os.environ.get("WHEELSCHED_URL") or DEFAULT_URL
        return cls(url, os.environ.get("WHEELSCHED_TOKEN") or None, config=config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections and stops the thread; the next call starts again."""
        with self._starting:
            thread, self._thread = self._thread, None
        if thread is not None and thread.process_id == os.getpid():
            thread.run(self._client.close())
            thread.close()

    def _run(self, call: Callable[[Client], Coroutine[Any, Any, Answer]]) -> Answer:
        with self._starting:
            if self._thread is None or self._thread.process_id != os.getpid():
                self._client = self._make()
                self._thread = LoopThread()
            thread = self._thread
        return thread.run(call(self._client))

    def _iterate(self, call: Callable[[Client], AsyncIterator[Answer]]) -> Iterator[Answer]:
        items: AsyncIterator[Answer] | None = None

        async def next_item(client: Client) -> tuple[Answer, ...]:
            nonlocal items
            items = items or call(client)
            async for item in items:
                return (item,)
            return ()

        while found := self._run(next_item):
            yield found[0]

    def create_job(self, job: AnyJob) -> JobAnswer:
        return self._run(lambda client: client.create_job(job))

    def create_jobs(self, jobs: Iterable[AnyJob], *, chunk: int = CHUNK) -> Iterator[BulkAnswer]:
        return self._iterate(lambda client: client.create_jobs(jobs, chunk=chunk))

    def get_job(self, job_id: UUID) -> JobAnswer:
        return self._run(lambda client: client.get_job(job_id))

    def list_jobs(
        self,
        *,
        state: JobState | None = None,
        name: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Iterator[JobAnswer]:
        return self._iterate(lambda client: client.list_jobs(state=state, name=name, tags=tags))

    def update_job(
        self, job_id: UUID, changes: JobChanges, *, version: int | None = None
    ) -> JobAnswer:
        return self._run(lambda client: client.update_job(job_id, changes, version=version))

    def delete_job(self, job_id: UUID, *, version: int | None = None) -> JobAnswer | None:
        return self._run(lambda client: client.delete_job(job_id, version=version))

    def pause_job(self, job_id: UUID) -> JobAnswer:
        return self._run(lambda client: client.pause_job(job_id))

    def resume_job(self, job_id: UUID, start: ResumeFrom = ResumeFrom.NOW) -> JobAnswer:
        return self._run(lambda client: client.resume_job(job_id, start))

    def trigger_job(self, job_id: UUID, payload: Any = UNSET) -> RequestedAnswer:
        return self._run(lambda client: client.trigger_job(job_id, payload))

    def backfill_job(
        self, job_id: UUID, since: datetime, until: datetime, *, preview: bool = False
    ) -> RequestedAnswer:
        return self._run(lambda client: client.backfill_job(job_id, since, until, preview=preview))

    def next_times(self, job_id: UUID, count: int = 10) -> NextAnswer:
        return self._run(lambda client: client.next_times(job_id, count))

    def explain(self, job_id: UUID, at: datetime) -> ExplainAnswer:
        return self._run(lambda client: client.explain(job_id, at))

    def preview(self, job: AnyJob) -> PreviewAnswer:
        return self._run(lambda client: client.preview(job))

    def list_runs(self, job_id: UUID) -> Iterator[RunAnswer]:
        return self._iterate(lambda client: client.list_runs(job_id))

    def list_latest_runs(
        self,
        *,
        state: RunState | None = None,
        job_id: UUID | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[RunAnswer]:
        return self._iterate(
            lambda client: client.list_latest_runs(
                state=state, job_id=job_id, since=since, until=until
            )
        )

    def get_run(self, run_id: str) -> RunAnswer:
        return self._run(lambda client: client.get_run(run_id))

    def cancel_run(self, run_id: str) -> CancelAnswer:
        return self._run(lambda client: client.cancel_run(run_id))

    def retry_run(self, run_id: str) -> RunAnswer:
        return self._run(lambda client: client.retry_run(run_id))

    def heartbeat(self, run_id: str, token: int) -> None:
        self._run(lambda client: client.heartbeat(run_id, token))

    def complete(self, run_id: str, token: int) -> RunAnswer:
        return self._run(lambda client: client.complete(run_id, token))

    def fail(self, run_id: str, token: int, error: str = "", *, retry: bool = True) -> RunAnswer:
        return self._run(lambda client: client.fail(run_id, token, error, retry=retry))

    def list_dead(
        self,
        *,
        job_id: UUID | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[RunAnswer]:
        return self._iterate(
            lambda client: client.list_dead(job_id=job_id, since=since, until=until)
        )

    def redrive(self, request: RedriveRequest | None = None) -> RequestedAnswer:
        return self._run(lambda client: client.redrive(request))

    def list_shards(self) -> ShardsAnswer:
        return self._run(lambda client: client.list_shards())

    def list_queues(self) -> QueuesAnswer:
        return self._run(lambda client: client.list_queues())

    def create_tenant(self, request: TenantRequest) -> TenantAnswer:
        return self._run(lambda client: client.create_tenant(request))

    def update_tenant(self, tenant_id: UUID, changes: TenantChanges) -> TenantAnswer:
        return self._run(lambda client: client.update_tenant(tenant_id, changes))

    def rotate_secret(self, tenant_id: UUID, request: RotateRequest | None = None) -> TenantAnswer:
        return self._run(lambda client: client.rotate_secret(tenant_id, request))

    def list_tenants(self) -> Iterator[TenantAnswer]:
        return self._iterate(lambda client: client.list_tenants())

    def create_token(self, request: TokenRequest) -> TokenAnswer:
        return self._run(lambda client: client.create_token(request))

    def list_tokens(self, tenant_id: UUID | None = None) -> Iterator[TokenAnswer]:
        return self._iterate(lambda client: client.list_tokens(tenant_id))

    def revoke_token(self, token_id: str) -> TokenAnswer:
        return self._run(lambda client: client.revoke_token(token_id))
