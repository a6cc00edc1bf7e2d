"""`wheelsched.schedule` and `wheelsched.cancel` are part of the transaction that calls them."""

from uuid import uuid4

import asyncpg
import pytest
from msgspec import Raw
from tests.integration.application.conftest import ALL, NOW_US, Place, plan_all, schedule

from wheelsched.core.model import Draft, JobState
from wheelsched.core.targets.egress import NO_EXCEPTIONS
from wheelsched.jobs.drafts import judge_draft
from wheelsched.ports import JobFilter, Registration


async def test_a_job_exists_if_and_only_if_the_transaction_commits(place: Place) -> None:
    application = await place.application()
    transaction = application.transaction()
    await transaction.start()
    await schedule(application)
    await transaction.rollback()
    caller = place.callers["acme"]
    assert await place.store.jobs.list_jobs(caller, JobFilter(), 9) == []
    assert await place.store.plans.list_unplanned(ALL, 9) == []
    async with application.transaction():
        job_id = await schedule(application)
        assert await place.store.jobs.list_jobs(caller, JobFilter(), 9) == []
    (job,) = await place.store.jobs.list_jobs(caller, JobFilter(), 9)
    assert (job.job_id, job.state) == (job_id, JobState.UNPLANNED)


async def test_a_cancellation_holds_if_and_only_if_the_transaction_commits(place: Place) -> None:
    application = await place.application()
    job_id = await schedule(application)
    await place.plan_all()
    transaction = application.transaction()
    await transaction.start()
    assert await application.fetchval("SELECT wheelsched.cancel('remind')") is True
    await transaction.rollback()
    assert (await place.read(job_id)).state is JobState.ACTIVE
    assert await application.fetchval("SELECT wheelsched.cancel($1::uuid)", job_id) is True
    assert await application.fetchval("SELECT wheelsched.cancel($1)", "remind") is None
    await place.plan_all()
    assert await place.owner.fetchval("SELECT count(*) FROM timers") == 0
    assert await place.owner.fetchval("SELECT jobs FROM job_counts") == 0


async def test_a_job_is_moved_by_cancelling_and_scheduling_it_in_one_transaction(
    place: Place,
) -> None:
    application = await place.application()
    await schedule(application)
    await place.plan_all()
    async with application.transaction():
        assert await application.fetchval("SELECT wheelsched.cancel('remind')") is True
        moved = await schedule(application, schedule="@hourly")
    await place.plan_all()
    caller = place.callers["acme"]
    assert [job.job_id for job in await place.store.jobs.list_jobs(caller, JobFilter(), 9)] == [
        moved
    ]


async def test_a_name_that_is_taken_is_refused_kept_or_replaced(place: Place) -> None:
    application = await place.application()
    first = await schedule(application)
    with pytest.raises(asyncpg.UniqueViolationError) as caught:
        await schedule(application)
    assert "the tenant has a job named 'remind' already" in str(caught.value)
    assert str(first) in str(caught.value.detail)
    assert "replace" in str(caught.value.hint)
    assert await schedule(application, if_exists="keep") == first
    await place.plan_all()
    second = await schedule(application, schedule="@hourly", if_exists="replace")
    assert second != first
    await place.plan_all()
    assert (await place.read(second)).state is JobState.ACTIVE
    timers = await place.owner.fetch("SELECT job_id FROM timers")
    assert [row["job_id"] for row in timers] == [second]
    assert await place.owner.fetchval("SELECT jobs FROM job_counts") == 1
    with pytest.raises(asyncpg.InvalidParameterValueError, match="error, keep or replace"):
        await schedule(application, if_exists="perhaps")


async def test_two_who_schedule_one_name_do_not_both_succeed(place: Place) -> None:
    one, other = await place.application(), await place.application()
    transaction = one.transaction()
    await transaction.start()
    job_id = await schedule(one)
    await other.execute("SET lock_timeout = '100ms'")
    with pytest.raises(asyncpg.LockNotAvailableError):
        await schedule(other)
    await transaction.commit()
    with pytest.raises(asyncpg.UniqueViolationError):
        await schedule(other)
    assert await schedule(other, if_exists="keep") == job_id


async def test_an_open_transaction_delays_no_other(place: Place) -> None:
    """However long it lasts: shards and the API go on, with the jobs that it has touched too."""
    application, other = await place.application(), await place.application()
    job_id = await schedule(application, "to cancel", schedule="2100-01-01T00:00:00Z")
    await place.plan_all()
    waiting = await schedule(application, "unplanned")
    store, caller = place.store, place.callers["acme"]
    lease = await store.leases.join(uuid4(), 5_000_000)
    await store.leases.acquire(lease, ALL)
    async with application.transaction():
        await schedule(application, "new")
        assert await application.fetchval("SELECT wheelsched.cancel('to cancel')") is True
        assert await application.fetchval("SELECT wheelsched.cancel('unplanned')") is True
        await schedule(other, "of another")
        job = judge_draft(
            Draft(
                job_id=uuid4(),
                tenant_id=caller.tenant_id,
                name="by REST",
                document=Raw(
                    b'{"name": "by REST", "schedule": "@daily", "target": {"url": "http://a.b/"}}'
                ),
                created_at_us=NOW_US,
                updated_at_us=NOW_US,
            ),
            NO_EXCEPTIONS,
        )
        assert await store.jobs.register(caller, [Registration(job.job, job.due_us)]) == set()
        await plan_all(store, lease)
        await store.timers.finish(lease, [job_id])
        await store.timers.pause_gone(lease, {job_id: 2})
        listed = await store.plans.list_unplanned(ALL, 9)
        assert [entry.job_id for entry in listed] == [waiting]  # passed by: it is locked
    await plan_all(store, lease)
    names = [job.name for job in await store.jobs.list_jobs(caller, JobFilter(), 9)]
    assert names == ["by REST", "new", "of another"]
    assert await place.owner.fetchval("SELECT jobs FROM job_counts") == 3
