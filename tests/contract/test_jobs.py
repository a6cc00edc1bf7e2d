"""Jobs of a tenant, on memory and on Postgres."""

from uuid import uuid4

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.contract.conftest import ALL, MINUTE_US, World

from wheelsched.core.model import JobState, RunKey, RunState, SkipReason
from wheelsched.errors import JobChanged, JobNameTaken, JobNotFound, JobNotPausable
from wheelsched.ports import ClaimedRetry, JobFilter, Registration

HALF_SECOND_US = 500_000


async def test_a_job_comes_back_as_it_was_written(world: World) -> None:
    job = await world.register(world.now_us)
    assert await world.jobs.get(world.tenant_id, job.job_id) == job
    assert bytes(job.payload) == b'{ "as":\t"written" }'


async def test_a_payload_is_kept_byte_for_byte(world: World) -> None:
    written = b'{"b": 1e400, "a": "\\u0000", "a": 1.10}'
    job = world.job(payload=Raw(written))
    await world.jobs.register(world.tenant_id, [Registration(job, world.now_us)])
    (read,) = await world.timers.read_jobs([job.job_id])
    assert bytes(read.payload) == written


async def test_registering_again_changes_nothing(world: World) -> None:
    job = world.job()
    for _ in range(2):
        assert (
            await world.jobs.register(world.tenant_id, [Registration(job, world.now_us)]) == set()
        )
    assert len(await world.timers.load(ALL, world.now_us)) == 1


async def test_names_are_unique_within_a_tenant(world: World) -> None:
    await world.register(world.now_us, "taken")
    second, third = world.job("taken"), world.job("free")
    refused = await world.jobs.register(
        world.tenant_id, [Registration(second, world.now_us), Registration(third, world.now_us)]
    )
    assert refused == {second.job_id}
    other = world.job("taken", tenant_id=world.other_id)
    assert await world.jobs.register(world.other_id, [Registration(other, world.now_us)]) == set()


async def test_one_batch_cannot_take_a_name_twice(world: World) -> None:
    twins = [world.job("twin"), world.job("twin")]
    refused = await world.jobs.register(
        world.tenant_id, [Registration(job, world.now_us) for job in twins]
    )
    assert refused == {twins[1].job_id}


async def test_thousands_at_once(world: World) -> None:
    jobs = [Registration(world.job(f"job {n}"), world.now_us + n * 1_000) for n in range(3_000)]
    assert await world.jobs.register(world.tenant_id, jobs) == set()
    horizon = await world.timers.load(ALL, world.now_us + 2_999_000)
    assert {job_id for job_id, _, _ in horizon} == {entry.job.job_id for entry in jobs}


async def test_a_job_without_a_future_is_finished(world: World) -> None:
    job = await world.register(None)
    assert await world.job_state(job) is JobState.FINISHED
    assert await world.due(job) is None
    with pytest.raises(JobNotPausable):
        await world.jobs.pause(world.tenant_id, job.job_id)
    with pytest.raises(JobNotPausable):
        await world.jobs.resume(world.tenant_id, job.job_id, world.now_us)


async def test_lists_by_name_in_pages_and_by_filter(world: World) -> None:
    for name in ("c", "a", "b"):
        await world.register(world.now_us, name)
    paused = world.job("d", tags={"team": "b", "tier": "1"})
    await world.jobs.register(world.tenant_id, [Registration(paused, world.now_us)])
    await world.jobs.pause(world.tenant_id, paused.job_id)

    async def names(wanted: JobFilter, limit: int = 9, after: str = "") -> list[str]:
        found = await world.jobs.list_jobs(world.tenant_id, wanted, limit, after)
        return [job.name for job in found]

    assert await names(JobFilter(), 3) == ["a", "b", "c"]
    assert await names(JobFilter(), 3, "c") == ["d"]
    assert await names(JobFilter(name="b")) == ["b"]
    assert await names(JobFilter(state=JobState.PAUSED)) == ["d"]
    assert await names(JobFilter(tags={"tier": "1"})) == ["d"]
    assert await names(JobFilter(tags={"tier": "1", "team": "a"})) == []


async def test_no_tenant_sees_or_touches_anothers(world: World) -> None:
    job = await world.register(world.now_us)
    key, token = await world.arm(await world.own_all(), job, world.now_us)
    with pytest.raises(JobNotFound):
        await world.jobs.get(world.other_id, job.job_id)
    with pytest.raises(JobNotFound):
        await world.jobs.pause(world.other_id, job.job_id)
    with pytest.raises(JobNotFound):
        await world.jobs.delete(world.other_id, job.job_id)
    changed = replace(job, version=2)
    with pytest.raises(JobNotFound):
        await world.jobs.edit(world.other_id, changed, None, is_rescheduled=True)
    assert await world.jobs.list_jobs(world.other_id, JobFilter(), 10) == []
    assert await world.history.list_runs(world.other_id, job.job_id, 10) == []
    assert not await world.history.heartbeat(world.other_id, key, token)
    assert await world.history.retry(world.other_id, [key]) == {key}


async def test_an_edit_needs_the_version_before(world: World) -> None:
    job = await world.register(world.now_us)
    changed = replace(job, version=2, payload=Raw(b"2"))
    await world.jobs.edit(world.tenant_id, changed, None, is_rescheduled=False)
    with pytest.raises(JobChanged):
        await world.jobs.edit(world.tenant_id, changed, None, is_rescheduled=False)
    assert await world.jobs.get(world.tenant_id, job.job_id) == changed


async def test_an_edit_cannot_take_a_name(world: World) -> None:
    await world.register(world.now_us, "taken")
    job = await world.register(world.now_us, "mine")
    with pytest.raises(JobNameTaken):
        await world.jobs.edit(
            world.tenant_id, replace(job, version=2, name="taken"), None, is_rescheduled=False
        )
    renamed = replace(job, version=2, name="new")
    await world.jobs.edit(world.tenant_id, renamed, None, is_rescheduled=False)
    assert (
        await world.jobs.register(world.tenant_id, [Registration(world.job("mine"), world.now_us)])
        == set()
    )


async def test_an_edit_of_the_payload_keeps_what_is_armed_and_shows_its_version(
    world: World,
) -> None:
    due_us = world.now_us + MINUTE_US
    job = await world.register(due_us)
    lease = await world.own_all()
    key, _ = await world.arm(lease, job, due_us)
    changed = replace(job, version=2, payload=Raw(b"2"))
    done = await world.jobs.edit(world.tenant_id, changed, None, is_rescheduled=False)
    assert done.too_late == ()
    (checked,) = await world.runs.recheck([key])
    assert (checked.state, checked.version) == (RunState.ARMED, 2)
    old = world.claim(job, due_us + MINUTE_US)
    assert await world.timers.arm(lease, [old]) == {RunKey(job.job_id, due_us + MINUTE_US)}
    assert await world.timers.arm(lease, [world.claim(changed, due_us + MINUTE_US)]) == set()


async def test_a_new_schedule_withdraws_what_is_armed(world: World) -> None:
    due_us = world.now_us + MINUTE_US
    job = await world.register(due_us)
    key, token = await world.arm(await world.own_all(), job, due_us)
    changed = replace(job, version=2)
    done = await world.jobs.edit(world.tenant_id, changed, due_us + 7_000, is_rescheduled=True)
    assert done.too_late == ()
    run, _ = await world.history.get_run(world.tenant_id, key)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, SkipReason.EDITED)
    assert await world.due(job) == due_us + 7_000
    await world.runs.settle([world.settled(key, token, RunState.SUCCEEDED)])
    assert await world.state(key) is RunState.SKIPPED


async def test_a_new_schedule_without_a_future_stops_the_timer(world: World) -> None:
    job = await world.register(world.now_us)
    finished = replace(job, version=2, state=JobState.FINISHED)
    await world.jobs.edit(world.tenant_id, finished, None, is_rescheduled=True)
    assert await world.due(job) is None
    revived = replace(job, version=3, state=JobState.ACTIVE)
    await world.jobs.edit(world.tenant_id, revived, world.now_us, is_rescheduled=True)
    assert await world.due(job) == world.now_us


async def test_pausing_stops_the_timer_and_withdraws_what_is_armed(world: World) -> None:
    due_us = world.now_us + MINUTE_US
    job = await world.register(due_us)
    lease = await world.own_all()
    key, _ = await world.arm(lease, job, due_us)
    done = await world.jobs.pause(world.tenant_id, job.job_id)
    assert (done.job.state, done.job.version, done.too_late) == (JobState.PAUSED, 2, ())
    assert done.job.paused_at_us is not None
    run, _ = await world.history.get_run(world.tenant_id, key)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, SkipReason.PAUSED)
    assert (run.missed_count, run.missed_since_us) == (1, due_us)
    assert await world.due(job) is None
    assert await world.jobs.pause(world.tenant_id, job.job_id) == done
    lost = await world.timers.arm(lease, [world.claim(job, due_us + MINUTE_US)])
    assert lost == {RunKey(job.job_id, due_us + MINUTE_US)}


async def test_a_pause_that_comes_too_late_says_so(world: World) -> None:
    due_us = world.now_us + HALF_SECOND_US
    job = await world.register(due_us)
    key, _ = await world.arm(await world.own_all(), job, due_us)
    done = await world.jobs.pause(world.tenant_id, job.job_id)
    assert done.too_late == (key,)
    assert await world.state(key) is RunState.ARMED


async def test_resuming_starts_the_timer_under_the_new_version(world: World) -> None:
    job = await world.register(world.now_us)
    await world.jobs.pause(world.tenant_id, job.job_id)
    done = await world.jobs.resume(world.tenant_id, job.job_id, world.now_us + MINUTE_US)
    assert (done.job.state, done.job.version) == (JobState.ACTIVE, 3)
    assert done.job.paused_at_us is None
    again = await world.jobs.resume(world.tenant_id, job.job_id, world.now_us)
    assert again.job == done.job
    assert await world.due(job) == world.now_us + MINUTE_US
    lease = await world.own_all()
    assert await world.timers.arm(lease, [world.claim(done.job, world.now_us + MINUTE_US)]) == set()


async def test_resuming_without_a_future_finishes(world: World) -> None:
    job = await world.register(world.now_us)
    await world.jobs.pause(world.tenant_id, job.job_id)
    done = await world.jobs.resume(world.tenant_id, job.job_id, None)
    assert done.job.state is JobState.FINISHED
    assert await world.due(job) is None


async def test_deleting_cancels_what_has_not_been_sent_and_keeps_history(world: World) -> None:
    due_us = world.now_us + MINUTE_US
    job = await world.register(world.now_us)
    lease = await world.own_all()
    failed, token = await world.arm(lease, job, world.now_us)
    armed, _ = await world.arm(lease, job, due_us)
    await world.runs.settle([world.settled(failed, token, RunState.RETRYING, retry_at_us=due_us)])
    await world.jobs.delete(world.tenant_id, job.job_id)
    with pytest.raises(JobNotFound):
        await world.jobs.delete(world.tenant_id, job.job_id)
    assert await world.state(failed) is RunState.CANCELLED
    assert await world.state(armed) is RunState.CANCELLED
    horizon = await world.timers.load(ALL, due_us + MINUTE_US)
    assert (len(horizon), horizon.retries) == (0, ())
    assert await world.timers.read_jobs([job.job_id]) == []
    assert [row.version for row in await world.runs.recheck([armed])] == [None]
    retry = ClaimedRetry(failed, due_us, world.token())
    assert await world.timers.arm_retries(lease, [retry]) == {failed}
    assert (
        await world.jobs.register(
            world.tenant_id, [Registration(world.job(job.name), world.now_us)]
        )
        == set()
    )


async def test_what_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(JobNotFound):
        await world.jobs.get(world.tenant_id, uuid4())
    with pytest.raises(JobNotFound):
        await world.jobs.resume(world.tenant_id, uuid4(), None)
