"""What a finished job gives back: its name and its place in the quota, on memory and Postgres."""

from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.contract.conftest import MINUTE_US, World
from tests.contract.test_plans import document, planned

from wheelsched.core.model import Job, JobState
from wheelsched.errors import JobNameTaken, JobNotFound, QuotaExceeded
from wheelsched.ports import FIRST_JOB, JobFilter, Lease, Registration, position_of


async def set_quota(world: World, job_quota: int) -> None:
    tenant = world.tenant("one", tenant_id=world.caller.tenant_id, job_quota=job_quota)
    await world.tenants.edit("operator", tenant)


async def finish(world: World, lease: Lease, name: str = "report") -> Job:
    """A job that has had its only run."""
    job = await world.register(world.now_us, name)
    await world.timers.arm(lease, [world.claim(job, world.now_us, next_due_us=None)])
    await world.timers.finish(lease, [job.job_id])
    finished = await world.jobs.get(world.caller, job.job_id)
    assert finished.state is JobState.FINISHED
    return finished


async def ids_in_pages(world: World, limit: int, wanted: JobFilter | None = None) -> list[UUID]:
    found, after = [], FIRST_JOB
    while page := await world.jobs.list_jobs(world.caller, wanted or JobFilter(), limit, after):
        found += [job.job_id for job in page]
        after = position_of(page[-1])
    return found


async def test_a_finished_job_frees_its_name_and_its_place(world: World) -> None:
    await set_quota(world, 1)
    lease = await world.own_all()
    for _ in range(3):
        await finish(world, lease)
    active = await world.register(world.now_us + MINUTE_US)
    with pytest.raises(QuotaExceeded):
        await world.register(world.now_us, "more")
    again = world.job()
    refused = await world.jobs.register(world.caller, [Registration(again, world.now_us)])
    assert refused == {again.job_id}
    await world.jobs.delete(world.caller, active.job_id)
    await world.register(world.now_us)


async def test_to_finish_twice_frees_one_place(world: World) -> None:
    await set_quota(world, 2)
    lease = await world.own_all()
    job = await finish(world, lease)
    await world.timers.finish(lease, [job.job_id])
    await world.jobs.delete(world.caller, job.job_id)
    for name in ("a", "b"):
        await world.register(world.now_us, name)
    with pytest.raises(QuotaExceeded):
        await world.register(world.now_us, "c")


async def test_what_is_resumed_or_edited_to_its_end_frees_both(world: World) -> None:
    await set_quota(world, 1)
    resumed = await world.register(world.now_us + MINUTE_US)
    await world.jobs.pause(world.caller, resumed.job_id)
    await world.jobs.resume(world.caller, resumed.job_id, None)
    edited = await world.register(world.now_us + MINUTE_US)
    ended = replace(edited, version=2, state=JobState.FINISHED)
    await world.jobs.edit(world.caller, ended, None, is_rescheduled=True)
    await world.register(world.now_us + MINUTE_US)


async def test_a_finished_job_that_gets_a_future_needs_its_name_again(world: World) -> None:
    finished = await finish(world, await world.own_all())
    active = await world.register(world.now_us + MINUTE_US)
    revived = replace(finished, version=finished.version + 1, state=JobState.ACTIVE)
    due_us = world.now_us + MINUTE_US
    with pytest.raises(JobNameTaken):
        await world.jobs.edit(world.caller, revived, due_us, is_rescheduled=True)
    assert await world.jobs.get(world.caller, finished.job_id) == finished
    renamed = replace(active, version=2, name="another")
    await world.jobs.edit(world.caller, renamed, None, is_rescheduled=False)
    await world.jobs.edit(world.caller, revived, due_us, is_rescheduled=True)
    assert await world.due(revived) == due_us
    refused = world.job()
    assert await world.jobs.register(world.caller, [Registration(refused, due_us)]) == {
        refused.job_id
    }


async def test_a_finished_job_that_gets_a_future_needs_a_place_again(world: World) -> None:
    await set_quota(world, 1)
    finished = await finish(world, await world.own_all())
    active = await world.register(world.now_us + MINUTE_US, "another")
    revived = replace(finished, version=finished.version + 1, state=JobState.ACTIVE)
    due_us = world.now_us + MINUTE_US
    with pytest.raises(QuotaExceeded):
        await world.jobs.edit(world.caller, revived, due_us, is_rescheduled=True)
    assert await world.jobs.get(world.caller, finished.job_id) == finished
    await world.jobs.delete(world.caller, active.job_id)
    await world.jobs.edit(world.caller, revived, due_us, is_rescheduled=True)
    with pytest.raises(QuotaExceeded):
        await world.register(world.now_us, "more")


async def test_a_finished_job_is_edited_even_if_another_has_its_name(world: World) -> None:
    finished = await finish(world, await world.own_all())
    await world.register(world.now_us + MINUTE_US)
    changed = replace(finished, version=finished.version + 1, tags={"team": "b"})
    acknowledged = await world.jobs.edit(world.caller, changed, None, is_rescheduled=False)
    assert acknowledged.job.tags == {"team": "b"}


async def test_of_one_name_the_unfinished_comes_first_and_then_the_latest(world: World) -> None:
    lease = await world.own_all()
    before = await world.register(world.now_us, "a")
    finished = [(await finish(world, lease)).job_id for _ in range(5)]
    active = await world.register(world.now_us + MINUTE_US)
    after = await finish(world, lease, "z")
    of_the_name = [active.job_id, *reversed(finished)]
    for limit in (1, 2, 3, 9):
        assert await ids_in_pages(world, limit) == [before.job_id, *of_the_name, after.job_id]
        assert await ids_in_pages(world, limit, JobFilter(name="report")) == of_the_name
    wanted = JobFilter(name="report", state=JobState.FINISHED)
    assert await ids_in_pages(world, 2, wanted) == of_the_name[1:]
    await world.jobs.delete(world.caller, active.job_id)
    (latest,) = await world.jobs.list_jobs(world.caller, JobFilter(name="report"), 1)
    assert latest.job_id == finished[-1]


async def test_an_application_schedules_a_name_that_has_finished(world: World) -> None:
    await set_quota(world, 1)
    lease = await world.own_all()
    finished = await finish(world, lease)
    transaction = await world.application.begin(world.caller)
    kept = await transaction.schedule(document(), "keep")
    await transaction.commit()
    assert kept != finished.job_id
    transaction = await world.application.begin(world.caller)
    replaced = await transaction.schedule(document(), "replace")
    await transaction.commit()
    with pytest.raises(JobNotFound):
        await world.jobs.read(world.caller, kept)
    assert await world.jobs.read(world.caller, finished.job_id) == finished
    assert replaced not in (kept, finished.job_id)


async def test_an_application_cancels_by_name_what_has_not_finished(world: World) -> None:
    lease = await world.own_all()
    finished = [await finish(world, lease) for _ in range(2)]
    job = await planned(world, lease)
    for expected in (True, False):
        transaction = await world.application.begin(world.caller)
        assert await transaction.cancel(job.name) is expected
        await transaction.commit()
    assert await ids_in_pages(world, 9) == [each.job_id for each in reversed(finished)]
