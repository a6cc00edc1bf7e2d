"""The audit of what people change, on memory and on Postgres."""

from uuid import uuid4

import pytest
from msgspec.structs import replace
from tests.contract.conftest import MINUTE_US, World

from wheelsched.core.model import RunKey, RunState, Trigger, format_run_id, requested_due_us
from wheelsched.errors import JobChanged, QuotaExceeded
from wheelsched.ports import Registration, RequestedRun


async def verbs(world: World) -> list[tuple[str, str]]:
    """What the caller did, and to what."""
    return [
        (verb, subject)
        for tenant_id, actor, verb, subject, _ in await world.audit()
        if (tenant_id, actor) == (world.caller.tenant_id, world.caller.actor)
    ]


async def test_every_change_of_a_job_is_written_once(world: World) -> None:
    job = await world.register(world.now_us)
    await world.jobs.register(world.caller, [Registration(job, world.now_us)])
    changed = replace(job, version=2)
    await world.jobs.edit(world.caller, changed, world.now_us, is_rescheduled=True)
    for _ in range(2):
        await world.jobs.pause(world.caller, job.job_id)
    for _ in range(2):
        await world.jobs.resume(world.caller, job.job_id, world.now_us)
    await world.jobs.delete(world.caller, job.job_id)
    subject = str(job.job_id)
    assert await verbs(world) == [
        ("job.register", subject),
        ("job.edit", subject),
        ("job.pause", subject),
        ("job.resume", subject),
        ("job.delete", subject),
    ]
    details = [line[4] for line in await world.audit() if line[1] == world.caller.actor]
    assert details == [
        {"count": 1, "names": ["report"]},
        {"name": "report", "version": 2, "is_rescheduled": True},
        {"name": "report", "version": 2},
        {"name": "report", "version": 3},
        {"name": "report", "version": 4},
    ]


async def test_many_jobs_are_one_line(world: World) -> None:
    for count in (2, 11):
        jobs = [Registration(world.job(f"{count}-{n}"), world.now_us) for n in range(count)]
        await world.jobs.register(world.caller, jobs)
    lines = [line[3:] for line in await world.audit() if line[1] == world.caller.actor]
    assert lines == [
        ("2 jobs", {"count": 2, "names": ["2-0", "2-1"]}),
        ("11 jobs", {"count": 11}),
    ]


async def test_every_change_of_a_run_is_written_once(world: World) -> None:
    job = await world.register(world.now_us)
    keys = [RunKey(job.job_id, requested_due_us(world.now_us, n)) for n in range(2)]
    request_id = uuid4()
    requested = [
        RequestedRun(key=key, trigger=Trigger.MANUAL, request_id=request_id) for key in keys
    ]
    for _ in range(2):
        await world.history.request(world.caller, requested)
        await world.history.cancel(world.caller, keys[0])
        await world.history.cancel(world.caller, keys[1])
    for _ in range(2):
        await world.history.retry(world.caller, keys)
    assert (await verbs(world))[1:] == [
        ("run.request", "2 runs"),
        ("run.cancel", format_run_id(keys[0])),
        ("run.cancel", format_run_id(keys[1])),
        ("run.retry", "2 runs"),
    ]


async def test_a_failed_change_is_not_audited(world: World) -> None:
    job = await world.register(world.now_us)
    before = await world.audit()
    with pytest.raises(JobChanged):
        await world.jobs.edit(world.caller, replace(job, version=9), None, is_rescheduled=False)
    (tenant,) = await world.tenants.read([world.other.tenant_id])
    await world.tenants.edit("operator", replace(tenant, job_quota=0))
    with pytest.raises(QuotaExceeded):
        await world.jobs.register(world.other, [Registration(world.job(), world.now_us)])
    assert len(await world.audit()) == len(before) + 1


async def test_what_workers_and_shards_do_is_history_and_not_audit(world: World) -> None:
    job = await world.register(world.now_us)
    key, token = await world.arm(await world.own_all(), job, world.now_us)
    before = await world.audit()
    await world.history.heartbeat(world.caller, key, token)
    await world.history.answer(world.caller, world.settled(key, token, RunState.SUCCEEDED))
    await world.timers.reload([job.job_id], world.now_us + MINUTE_US)
    assert await world.audit() == before
