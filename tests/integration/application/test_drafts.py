"""Drafts on their way: which is planned first, which is refused, and when that is forgotten."""

from uuid import uuid4

import asyncpg
import pytest
from tests.integration.application.conftest import ALL, NOW_US, Place, schedule

from wheelsched.core.model import Draft, JobState
from wheelsched.ports import JobFilter, Plan, Tenant
from wheelsched.store.schema import retention
from wheelsched.store.schema.settings import Settings


async def test_the_earliest_draft_is_planned_first(place: Place) -> None:
    application = await place.application()
    names = {"cron": "* * * * *", "late": "2100-01-02T00:00:00Z", "soon": "2100-01-01T00:00:00Z"}
    for name, written in names.items():
        await schedule(application, name, schedule=written)
    entries = await place.store.plans.list_unplanned(ALL, 9)
    assert [entry.draft.name for entry in entries if entry.draft] == ["soon", "late", "cron"]


async def test_the_quota_is_told_at_once_and_held_when_planning(place: Place) -> None:
    caller = place.callers["acme"]
    tenant = Tenant(tenant_id=caller.tenant_id, name="acme", job_quota=3, created_at_us=NOW_US)
    await place.store.tenants.edit("test", tenant)
    application = await place.application()
    async with application.transaction():
        for number in range(3):
            await schedule(application, f"old {number}")
        with pytest.raises(asyncpg.ConfigurationLimitExceededError, match="as it may have: 3"):
            async with application.transaction():
                await schedule(application, "old 4")
        for number in range(3):
            await application.fetchval("SELECT wheelsched.cancel($1)", f"old {number}")
    for number in range(5):  # each in a transaction of its own, none of which sees the others'
        await schedule(application, f"job {number}")
    await place.plan_all()
    refused = await place.store.jobs.list_jobs(caller, JobFilter(state=JobState.REFUSED), 9)
    assert [job.error for job in refused if isinstance(job, Draft)] == [
        "the tenant has reached its quota of 3 jobs"
    ] * 2
    with pytest.raises(asyncpg.ConfigurationLimitExceededError):
        await schedule(application, "another")
    await schedule(application, "job 0", if_exists="replace")


async def test_refused_jobs_are_deleted_after_a_week(place: Place) -> None:
    job_id = await schedule(await place.application())
    (entry,) = await place.store.plans.list_unplanned(ALL, 9)
    assert entry.draft is not None
    lease = await place.store.leases.join(uuid4(), 5_000_000)
    await place.store.leases.acquire(lease, ALL)
    plan = Plan(number=entry.number, draft=entry.draft, error="wrong")
    await place.store.plans.plan(lease, [plan])
    await retention.Retention(place.database).drop_old_days(Settings())
    assert (await place.read(job_id)).state is JobState.REFUSED
    await place.owner.execute("UPDATE jobs SET updated_at = now() - interval '8 days'")
    await retention.Retention(place.database).drop_old_days(Settings())
    assert await place.owner.fetchval("SELECT count(*) FROM jobs") == 0


async def test_no_statement_forgets_more_of_them_than_a_batch(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing bounds how many there are, and every statement has its timeout."""
    application = await place.application()
    for number in range(5):
        await schedule(application, f"job {number}")
    await place.owner.execute(
        "UPDATE jobs SET state = 'refused', updated_at = now() - interval '8 days'"
    )
    assert await place.database.fetchval(retention.QUERIES["forget_refused"], 7, 2) == 2
    monkeypatch.setattr(retention, "BATCH", 2)
    await retention.Retention(place.database).drop_old_days(Settings())
    assert await place.owner.fetchval("SELECT count(*) FROM jobs") == 0
