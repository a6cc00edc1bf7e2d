"""Jobs that applications write in transactions of their own, until they are planned or refused."""

import asyncio
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace
from tests.contract.conftest import ALL, MINUTE_US, World

from wheelsched.core.model import Draft, Job, JobState, RunState
from wheelsched.core.partition import partition_of
from wheelsched.errors import FenceRaised, JobNotFound, JobNotPlanned, LeaseLost, QuotaExceeded
from wheelsched.ports import Hint, JobFilter, Lease, Plan, Registration, Unplanned

URL = "https://example.org/"


def document(name: str = "report", **fields: object) -> dict[str, object]:
    return {"name": name, "schedule": "0 9 * * 1", "target": {"url": URL}, **fields}


async def unplanned(world: World, limit: int = 99) -> list[Unplanned]:
    return await world.plans.list_unplanned(ALL, limit)


async def draft_of(world: World, job_id: UUID) -> Draft:
    found = await world.jobs.read(world.caller, job_id)
    assert isinstance(found, Draft)
    return found


async def plan_for(world: World, job_id: UUID, **changes: object) -> Plan:
    """What a shard makes of a draft: here always the same job."""
    (entry,) = [entry for entry in await unplanned(world) if entry.job_id == job_id]
    assert entry.draft is not None
    job = world.job(entry.draft.name, job_id=job_id, created_at_us=entry.draft.created_at_us)
    fields: dict[str, object] = {
        "number": entry.number,
        "draft": entry.draft,
        "registration": Registration(job, world.now_us + MINUTE_US),
    }
    return Plan(**(fields | changes))  # type: ignore[arg-type]


async def planned(world: World, lease: Lease, name: str = "report") -> Job:
    """A job that was scheduled and planned."""
    job_id = await world.application.schedule(world.caller, document(name))
    result = await world.plans.plan(lease, [await plan_for(world, job_id)])
    assert result.accepted == {job_id}
    return await world.jobs.get(world.caller, job_id)


async def test_what_is_scheduled_is_there_and_not_planned(world: World) -> None:
    job_id = await world.application.schedule(world.caller, document(payload={"a": [1, None]}))
    draft = await draft_of(world, job_id)
    assert (draft.name, draft.state, draft.version) == ("report", JobState.UNPLANNED, 1)
    written = msgspec.json.decode(draft.document)
    assert (written["schedule"], written["payload"]) == ("0 9 * * 1", {"a": [1, None]})
    assert written["target"]["url"] == URL
    with pytest.raises(JobNotPlanned):
        await world.jobs.get(world.caller, job_id)
    with pytest.raises(JobNotPlanned):
        await world.jobs.pause(world.caller, job_id)
    wanted = JobFilter(state=JobState.UNPLANNED)
    assert await world.jobs.list_jobs(world.caller, wanted, 9) == [draft]
    assert await world.jobs.list_jobs(world.other, JobFilter(), 9) == []
    assert [(entry.job_id, entry.draft) for entry in await unplanned(world)] == [(job_id, draft)]
    assert await world.timers.read_jobs([job_id]) == []


async def test_only_the_partitions_that_are_asked_for_are_listed(world: World) -> None:
    job_id = await world.application.schedule(world.caller, document())
    others = set(ALL) - {partition_of(job_id)}
    assert await world.plans.list_unplanned(others, 9) == []
    assert len(await world.plans.list_unplanned([partition_of(job_id)], 9)) == 1


async def test_a_plan_makes_a_job_of_it_with_its_timer(world: World) -> None:
    lease = await world.own_all()
    job_id = await world.application.schedule(world.caller, document())
    plan = await plan_for(world, job_id)
    assert plan.registration is not None
    assert (await world.plans.plan(lease, [plan])).accepted == {job_id}
    job = await world.jobs.get(world.caller, job_id)
    made = plan.registration.job
    assert job == replace(made, version=2, updated_at_us=job.updated_at_us)
    assert await unplanned(world) == []
    horizon = await world.timers.reload([job_id], world.now_us + 2 * MINUTE_US)
    assert list(horizon) == [(job_id, plan.registration.due_us, 2)]
    again = await world.plans.plan(lease, [plan])
    assert (again.accepted, again.refused) == (frozenset(), frozenset())
    assert await world.jobs.get(world.caller, job_id) == job
    await world.arm(lease, job, world.now_us + MINUTE_US)


async def test_what_is_refused_stays_with_its_reason(world: World) -> None:
    lease = await world.own_all()
    job_id = await world.application.schedule(world.caller, document(schedule="99 * * * *"))
    plan = await plan_for(world, job_id, registration=None, error="/schedule: 99 is no minute")
    assert (await world.plans.plan(lease, [plan])).refused == {job_id}
    draft = await draft_of(world, job_id)
    assert (draft.state, draft.error) == (JobState.REFUSED, "/schedule: 99 is no minute")
    assert draft.version == 2
    assert await unplanned(world) == []
    assert await world.due(world.job(job_id=job_id)) is None
    wanted = JobFilter(state=JobState.REFUSED)
    assert await world.jobs.list_jobs(world.caller, wanted, 9) == [draft]
    with pytest.raises(JobNotPlanned, match="99 is no minute"):
        await world.jobs.get(world.caller, job_id)


async def test_nothing_is_planned_or_cleared_without_the_lease(world: World) -> None:
    job_id = await world.application.schedule(world.caller, document())
    plan = await plan_for(world, job_id)
    lease = await world.own_all()
    raised = await world.leases.release(lease, [1])
    for number, error in ((lease, FenceRaised), (Lease(UUID(int=1), 1), LeaseLost)):
        with pytest.raises(error):
            await world.plans.plan(number, [plan])
        with pytest.raises(error):
            await world.plans.clear(number, [plan.number])
    await world.leases.release(raised, ALL)
    nobodys = await world.plans.plan(Lease(raised.shard_id, raised.fence + 1), [plan])
    assert nobodys.accepted == frozenset()
    assert (await draft_of(world, job_id)).state is JobState.UNPLANNED
    assert len(await unplanned(world)) == 1


async def test_a_draft_that_is_gone_is_not_planned(world: World) -> None:
    lease = await world.own_all()
    job_id = await world.application.schedule(world.caller, document())
    plan = await plan_for(world, job_id)
    deleted = await world.jobs.delete(world.caller, job_id)
    assert (deleted.job.name, deleted.too_late) == ("report", ())
    assert (await world.plans.plan(lease, [plan])).accepted == frozenset()
    (left,) = await unplanned(world)
    assert left.draft is None
    await world.plans.clear(lease, [left.number])
    assert await unplanned(world) == []


async def test_clearing_leaves_what_is_still_to_be_planned(world: World) -> None:
    lease = await world.own_all()
    await world.application.schedule(world.caller, document())
    (entry,) = await unplanned(world)
    await world.plans.clear(lease, [entry.number])
    assert await unplanned(world) == [entry]


async def test_jobs_beyond_the_quota_are_refused(world: World) -> None:
    tenant = world.tenant("one", tenant_id=world.caller.tenant_id, job_quota=2)
    lease = await world.own_all()
    await world.jobs.register(world.caller, [Registration(world.job("first"), world.now_us)])
    job_ids = [
        await world.application.schedule(world.caller, document(name)) for name in ("b", "c", "d")
    ]
    await world.tenants.edit("operator", tenant)
    plans = [await plan_for(world, job_id) for job_id in job_ids]
    plans[1] = replace(plans[1], registration=None, error="wrong")
    result = await world.plans.plan(lease, plans)
    assert result.accepted == {job_ids[0]}
    assert result.refused == set(job_ids[1:])
    assert (await draft_of(world, job_ids[1])).error == "wrong"
    assert (await draft_of(world, job_ids[2])).error == "the tenant has reached its quota of 2 jobs"
    with pytest.raises(QuotaExceeded):
        await world.jobs.register(world.caller, [Registration(world.job("e"), world.now_us)])
    await world.jobs.delete(world.caller, job_ids[2])  # was never counted
    with pytest.raises(QuotaExceeded):
        await world.jobs.register(world.caller, [Registration(world.job("e"), world.now_us)])


async def test_a_cancelled_job_is_gone_and_then_cleared_away(world: World) -> None:
    tenant = world.tenant("one", tenant_id=world.caller.tenant_id, job_quota=1)
    await world.tenants.edit("operator", tenant)
    lease = await world.own_all()
    job = await planned(world, lease)
    key, token = await world.arm(lease, job, world.now_us + MINUTE_US)
    retry_at_us = world.now_us + 9 * MINUTE_US
    await world.runs.settle([world.settled(key, token, RunState.RETRYING, retry_at_us=retry_at_us)])
    assert await world.application.cancel(world.caller, job.job_id) is True
    with pytest.raises(JobNotFound):
        await world.jobs.read(world.caller, job.job_id)
    (left,) = await unplanned(world)
    assert (left.job_id, left.draft) == (job.job_id, None)
    for _ in range(2):
        await world.plans.clear(lease, [left.number])
        assert await unplanned(world) == []
        assert await world.due(job) is None
        assert await world.state(key) is RunState.CANCELLED
    again = Registration(world.job(), world.now_us)
    assert await world.jobs.register(world.caller, [again]) == set()
    with pytest.raises(QuotaExceeded):
        await world.jobs.register(world.caller, [Registration(world.job("more"), world.now_us)])


async def test_a_cancellation_says_whether_it_came_in_time(world: World) -> None:
    lease = await world.own_all()
    soon = await world.register(world.now_us, "soon")
    await world.arm(lease, soon, world.now_us)
    late = await world.register(world.now_us + MINUTE_US, "late")
    await world.arm(lease, late, world.now_us + MINUTE_US)
    over = await world.register(None, "over")
    assert await world.application.cancel(world.other, soon.job_id) is None
    assert await world.application.cancel(world.caller, soon.job_id) is False
    assert await world.application.cancel(world.caller, late.job_id) is True
    assert await world.application.cancel(world.caller, late.job_id) is None
    assert await world.application.cancel(world.caller, over.job_id) is False
    assert await world.job_state(over) is JobState.FINISHED


async def test_a_draft_is_cancelled_before_it_was_planned(world: World) -> None:
    lease = await world.own_all()
    job_id = await world.application.schedule(world.caller, document())
    assert await world.application.cancel(world.caller, job_id) is True
    left = await unplanned(world)
    assert [entry.draft for entry in left] == [None, None]
    await world.plans.clear(lease, [entry.number for entry in left])
    assert await unplanned(world) == []
    assert await world.application.schedule(world.caller, document()) != job_id


async def test_shards_are_told_of_both(world: World) -> None:
    heard: list[Hint] = []
    source = await world.listen(heard.append)
    job_id = await world.application.schedule(world.caller, document())
    await source.confirm()
    assert heard == [Hint(partition_of(job_id), job_id, is_unplanned=True)]
    await world.application.cancel(world.caller, job_id)
    await source.confirm()
    assert heard == [Hint(partition_of(job_id), job_id, is_unplanned=True)] * 2
    await source.close()


async def test_both_are_in_the_audit(world: World) -> None:
    job_id = await world.application.schedule(world.caller, document())
    await world.application.cancel(world.caller, job_id)
    lines = [line for line in await world.audit() if line[3] == str(job_id)]
    assert [(line[0], line[2], line[4]) for line in lines] == [
        (world.caller.tenant_id, "job.register", {"count": 1, "names": ["report"]}),
        (world.caller.tenant_id, "job.delete", {"name": "report", "version": 1}),
    ]


async def test_two_owners_plan_a_draft_once(world: World) -> None:
    lease = await world.own_all()
    job_id = await world.application.schedule(world.caller, document())
    plan = await plan_for(world, job_id)
    results = await asyncio.gather(*(world.plans.plan(lease, [plan]) for _ in range(4)))
    assert sorted(len(result.accepted) for result in results) == [0, 0, 0, 1]
    assert (await world.jobs.get(world.caller, job_id)).version == 2
