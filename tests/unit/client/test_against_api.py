"""The client against the real API, with a worker that reports through it."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from tests.api import Api, serve
from tests.unit.worker.callbacks import SECRET, signed, signed_values

from wheelsched.client import Client, JobFields, SyncClient
from wheelsched.core.model import JobState, Run, RunKey, RunState
from wheelsched.errors import (
    EditedMeanwhile,
    InvalidRequest,
    NameTaken,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    StaleToken,
)
from wheelsched.testing import MemoryStore
from wheelsched.wire.callback import write_instant
from wheelsched.wire.schedule import Verdict
from wheelsched.wire.tenant import RotateRequest, Scope, TenantChanges, TenantRequest, TokenRequest
from wheelsched.worker import Worker

DAY = timedelta(days=1)
JOB: JobFields = {
    "name": "weekly-report",
    "schedule": "0 9 * * 1",
    "target": {"url": "https://example.org/hooks/report"},
    "tags": {"team": "a"},
}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    store = MemoryStore(lambda: time.time_ns() // 1_000)
    async with serve(store, store) as served:
        yield served


@pytest.fixture
def url(api: Api) -> str:
    return str(api.client._base_url)


@pytest.fixture
async def client(api: Api, url: str) -> AsyncIterator[Client]:
    async with Client(url, api.token) as client:
        yield client


def numbered(number: int, **changes: object) -> JobFields:
    return {**JOB, "name": f"job {number}", **changes}  # type: ignore[typeddict-item]


async def armed(api: Api, client: Client) -> Run:
    """An armed run of a job whose worker is slow."""
    due_us = api.now_us // 1_000_000 * 1_000_000 + 60_000_000
    at = datetime.fromtimestamp(due_us // 1_000_000, UTC)
    job = await client.create_job(numbered(1, schedule=at.isoformat(), retry={"max_attempts": 1}))
    await api.arm(await api.own_all(), str(job.job_id), due_us, due_us + 86_400_000_000)
    return await api.run(RunKey(job.job_id, due_us))


async def test_the_life_of_a_job(client: Client) -> None:
    job = await client.create_job(JOB)
    assert (await client.get_job(job.job_id)) == job
    with pytest.raises(NameTaken):
        await client.create_job(JOB)
    edited = await client.update_job(job.job_id, {"timezone": "Asia/Tokyo"}, version=1)
    assert (edited.version, edited.timezone) == (2, "Asia/Tokyo")
    with pytest.raises(EditedMeanwhile):
        await client.update_job(job.job_id, {"timezone": None}, version=1)
    assert (await client.pause_job(job.job_id)).state is JobState.PAUSED
    assert (await client.resume_job(job.job_id)).state is JobState.ACTIVE
    assert len((await client.next_times(job.job_id, 3)).items) == 3
    explained = await client.explain(job.job_id, job.created_at - DAY)
    assert explained.verdict is Verdict.NOT_REGISTERED
    (run_id,) = (await client.trigger_job(job.job_id)).run_ids
    assert (await client.get_run(run_id)).state is RunState.RETRYING
    assert [run.run_id async for run in client.list_runs(job.job_id)] == [run_id]
    week = timedelta(days=7)
    counted = await client.backfill_job(
        job.job_id, job.created_at - 4 * week, job.created_at, preview=True
    )
    assert counted.count == 4
    await client.delete_job(job.job_id)
    with pytest.raises(NotFound):
        await client.get_job(job.job_id)


async def test_invalid_fields_are_reported_with_pointers(client: Client) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await client.create_job({**JOB, "schedule": "0 99 * * *", "timeout": "never"})
    assert {error.pointer for error in raised.value.errors} == {"/schedule", "/timeout"}
    preview = await client.preview(JOB)
    assert preview.words


async def test_jobs_are_registered_in_chunks_and_listed_in_pages(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [numbered(number) for number in range(24)] + [numbered(24, schedule="?")]
    answers = [answer async for answer in client.create_jobs(jobs, chunk=10)]
    assert [(each.registered, each.refused) for each in answers] == [(10, 0), (10, 0), (4, 1)]
    problem = answers[2].items[-1].problem
    assert problem is not None
    assert problem.errors[0].pointer == "/schedule"
    monkeypatch.setattr("wheelsched.client.calls.PAGE", 5)
    listed = [job.name async for job in client.list_jobs(tags={"team": "a"})]
    assert len(listed) == len(set(listed)) == 24
    assert [job.name async for job in client.list_jobs(name="job 3")] == ["job 3"]


async def test_the_sync_client_matches_the_async_client(api: Api, url: str) -> None:
    def use() -> list[str]:
        with SyncClient(url, api.token) as client:
            job = client.create_job(JOB)
            client.pause_job(job.job_id)
            return [each.name for each in client.list_jobs(state=JobState.PAUSED)]

    assert await asyncio.to_thread(use) == ["weekly-report"]


async def test_tenants_and_tokens(client: Client, url: str) -> None:
    tenant = await client.create_tenant(TenantRequest(name="another"))
    assert tenant.secret is not None
    Worker([tenant.secret])
    made = await client.create_token(
        TokenRequest(name="reader", scopes=(Scope.READ,), tenant_id=tenant.tenant_id)
    )
    async with Client(url, made.token) as reader:
        assert [job async for job in reader.list_jobs()] == []
        with pytest.raises(NotAllowed):
            await reader.create_job(JOB)
    changed = await client.update_tenant(tenant.tenant_id, TenantChanges(job_quota=9))
    assert (changed.job_quota, changed.weight) == (9, tenant.weight)
    assert (await client.rotate_secret(tenant.tenant_id)).secret not in (None, tenant.secret)
    finished = await client.rotate_secret(tenant.tenant_id, RotateRequest(finish=True))
    assert (finished.secret, finished.secret_count) == (None, 1)
    assert "another" in [each.name async for each in client.list_tenants()]
    assert [each.name async for each in client.list_tokens(tenant.tenant_id)] == ["reader"]
    assert (await client.revoke_token(made.token_id)).revoked_at is not None
    async with Client(url, "wst_nobody") as nobody:
        with pytest.raises(NotAuthenticated):
            await nobody.list_shards()


async def test_dead_runs_are_redriven(api: Api, client: Client) -> None:
    run = await armed(api, client)
    await api.settle(run.key, RunState.DEAD, error="no paper")
    (dead,) = [each async for each in client.list_dead(job_id=run.job_id)]
    assert dead.error == "no paper"
    assert (await client.redrive()).run_ids == [run.run_id]
    assert (await client.cancel_run(run.run_id)).in_time


async def test_a_stale_report_raises_stale_token(api: Api, client: Client) -> None:
    run = await armed(api, client)
    assert run.token is not None
    await client.heartbeat(run.run_id, run.token)
    with pytest.raises(StaleToken):
        await client.heartbeat(run.run_id, run.token - 1)
    with pytest.raises(StaleToken):
        await client.complete(run.run_id, run.token - 1)
    with pytest.raises(NotFound):
        await client.heartbeat(f"{uuid4().hex}-{run.due_us}", run.token)
    assert (await client.complete(run.run_id, run.token)).state is RunState.SUCCEEDED


@pytest.mark.parametrize(("fails", "state"), [(False, RunState.SUCCEEDED), (True, RunState.DEAD)])
async def test_a_long_run_from_its_callback_to_its_end(
    api: Api, client: Client, fails: bool, state: RunState
) -> None:
    run = await armed(api, client)
    worker = Worker([SECRET], client=client)
    end = asyncio.Event()

    @worker.job("job 1", long=True)
    async def handle(payload: object) -> None:
        await end.wait()
        if fails:
            raise ValueError("no paper")

    headers = {
        "wheelsched-run-id": run.run_id,
        "wheelsched-job-id": str(run.job_id),
        "wheelsched-job-name": "job%201",
        "wheelsched-scheduled-at": write_instant(run.due_us),
        "wheelsched-attempt": "1",
        "wheelsched-fencing-token": str(run.token),
        "wheelsched-trigger": "schedule",
    }
    now_s = time.time_ns() // 1_000_000_000
    headers |= signed("key", b"{}", at_s=now_s) | signed_values("key", headers, at_s=now_s)
    assert (await worker.receiver.receive(headers, b"{}")).status == 202
    end.set()
    await worker.stop()
    settled = await api.run(run.key)
    assert settled.state is state
    assert settled.error == ("ValueError: no paper" if fails else None)
