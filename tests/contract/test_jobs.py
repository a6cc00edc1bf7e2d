"""Jobs of a tenant, on memory and on Postgres."""

import asyncio
from uuid import uuid4

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.contract.conftest import ALL, MINUTE_US, World

from wheelsched.core.model import JobState, RunKey, RunState, SkipReason, Trigger
from wheelsched.core.policies.misfire import Skip
from wheelsched.errors import JobChanged, JobNameTaken, JobNotFound, JobNotPausable, TenantNotFound
from wheelsched.ports import (
    FIRST_JOB,
    Caller,
    ClaimedRetry,
    JobFilter,
    JobPosition,
    JobsFound,
    JobsPage,
    Registration,
    RequestedRun,
    position_of,
)

HALF_SECOND_US = 500_000


async def test_a_job_comes_back_as_it_was_written(world: World) -> None:
    job = await world.register(world.now_us)
    assert await world.jobs.get(world.caller, job.job_id) == job
    assert bytes(job.payload) == b'{ "as":\t"written" }'


async def test_a_payload_is_kept_byte_for_byte(world: World) -> None:
    written = b'{"b": 1e400, "a": "\\u0000", "a": 1.10}'
    job = world.job(payload=Raw(written))
    await world.jobs.register(world.caller, [Registration(job, world.now_us)])
    (read,) = await world.timers.read_jobs([job.job_id])
    assert bytes(read.payload) == written


async def test_registering_again_changes_nothing(world: World) -> None:
    job = world.job()
    for _ in range(2):
        assert await world.jobs.register(world.caller, [Registration(job, world.now_us)]) == set()
    assert len(await world.timers.load(ALL, world.now_us)) == 1


async def test_names_are_unique_within_a_tenant(world: World) -> None:
    await world.register(world.now_us, "taken")
    second, third = world.job("taken"), world.job("free")
    refused = await world.jobs.register(
        world.caller, [Registration(second, world.now_us), Registration(third, world.now_us)]
    )
    assert refused == {second.job_id}
    other = world.job("taken", tenant_id=world.other.tenant_id)
    assert await world.jobs.register(world.other, [Registration(other, world.now_us)]) == set()


async def test_one_batch_cannot_take_a_name_twice(world: World) -> None:
    twins = [world.job("twin"), world.job("twin")]
    refused = await world.jobs.register(
        world.caller, [Registration(job, world.now_us) for job in twins]
    )
    assert refused == {twins[1].job_id}


async def test_thousands_at_once(world: World) -> None:
    jobs = [Registration(world.job(f"job {n}"), world.now_us + n * 1_000) for n in range(10_000)]
    assert await world.jobs.register(world.caller, jobs) == set()
    horizon = await world.timers.load(ALL, world.now_us + 9_999_000)
    assert {job_id for job_id, _, _ in horizon} == {each.job.job_id for each in jobs}


async def test_a_job_without_a_future_is_finished(world: World) -> None:
    job = await world.register(None)
    assert await world.job_state(job) is JobState.FINISHED
    assert await world.due(job) is None
    with pytest.raises(JobNotPausable):
        await world.jobs.pause(world.caller, job.job_id)
    with pytest.raises(JobNotPausable):
        await world.jobs.resume(world.caller, job.job_id, world.now_us)


async def test_concurrent_reads_find_the_jobs_of_their_own_tenant(world: World) -> None:
    jobs = [await world.register(world.now_us, f"job {n}") for n in range(30)]
    own = await asyncio.gather(*(world.jobs.read(world.caller, job.job_id) for job in jobs * 2))
    assert own == jobs * 2
    foreign = (world.jobs.read(world.other, job.job_id) for job in jobs)
    missing = (world.jobs.read(world.caller, uuid4()) for _ in jobs)
    mixed = await asyncio.gather(
        *(world.jobs.read(world.caller, job.job_id) for job in jobs),
        *foreign,
        *missing,
        return_exceptions=True,
    )
    assert mixed[:30] == jobs
    assert {type(each) for each in mixed[30:]} == {JobNotFound}


async def test_concurrent_lists_are_those_of_their_own_tenant(world: World) -> None:
    job = await world.register(world.now_us)
    callers = [world.caller, world.other] * 30
    lists = await asyncio.gather(*(world.jobs.list_jobs(who, JobFilter(), 9) for who in callers))
    assert lists == [[job], []] * 30


async def test_a_page_is_not_read_again_while_its_jobs_are_the_same(world: World) -> None:
    first = await world.register(world.now_us, "a")
    await world.register(world.now_us, "b")
    page = JobsPage(JobFilter(), 9)

    async def found(caller: Caller, known: bytes | None = None) -> JobsFound:
        return await world.jobs.list_jobs_unless(caller, page, known)

    read = await found(world.caller)
    assert read.jobs == await world.jobs.list_jobs(world.caller, JobFilter(), 9)
    assert await found(world.caller, read.fingerprint) == JobsFound(read.fingerprint, None)
    assert await found(world.other, read.fingerprint) == JobsFound(None, [])
    await world.jobs.pause(world.caller, first.job_id)
    paused = await found(world.caller, read.fingerprint)
    assert paused.fingerprint != read.fingerprint
    assert paused.jobs == await world.jobs.list_jobs(world.caller, JobFilter(), 9)
    await world.jobs.delete(world.caller, first.job_id)
    deleted = await found(world.caller, paused.fingerprint)
    assert deleted.jobs is not None
    assert [job.name for job in deleted.jobs] == ["b"]


async def test_a_page_of_other_jobs_has_another_fingerprint(world: World) -> None:
    await world.register(world.now_us, "a")
    await world.register(world.now_us, "b")
    one = await world.jobs.list_jobs_unless(world.caller, JobsPage(JobFilter(), 1), None)
    two = await world.jobs.list_jobs_unless(world.caller, JobsPage(JobFilter(), 2), None)
    named = JobsPage(JobFilter(name="b"), 1)
    other = await world.jobs.list_jobs_unless(world.caller, named, one.fingerprint)
    assert len({one.fingerprint, two.fingerprint, other.fingerprint}) == 3
    nothing = JobsPage(JobFilter(name="c"), 9)
    empty = await world.jobs.list_jobs_unless(world.caller, nothing, one.fingerprint)
    assert empty == JobsFound(None, [])


async def test_lists_by_name_in_pages_and_by_filter(world: World) -> None:
    registered = {name: await world.register(world.now_us, name) for name in ("c", "a", "b")}
    paused = world.job("d", tags={"team": "b", "tier": "1"})
    await world.jobs.register(world.caller, [Registration(paused, world.now_us)])
    await world.jobs.pause(world.caller, paused.job_id)

    async def names(wanted: JobFilter, limit: int = 9, after: JobPosition = FIRST_JOB) -> list[str]:
        found = await world.jobs.list_jobs(world.caller, wanted, limit, after)
        return [job.name for job in found]

    assert await names(JobFilter(), 3) == ["a", "b", "c"]
    assert await names(JobFilter(), 3, position_of(registered["c"])) == ["d"]
    assert await names(JobFilter(name="b")) == ["b"]
    assert await names(JobFilter(state=JobState.PAUSED)) == ["d"]
    assert await names(JobFilter(tags={"tier": "1"})) == ["d"]
    assert await names(JobFilter(tags={"tier": "1", "team": "a"})) == []


async def test_no_tenant_sees_or_touches_anothers(world: World) -> None:
    job = await world.register(world.now_us)
    key, token = await world.arm(await world.own_all(), job, world.now_us)
    with pytest.raises(JobNotFound):
        await world.jobs.get(world.other, job.job_id)
    with pytest.raises(JobNotFound):
        await world.jobs.pause(world.other, job.job_id)
    with pytest.raises(JobNotFound):
        await world.jobs.delete(world.other, job.job_id)
    changed = replace(job, version=2)
    with pytest.raises(JobNotFound):
        await world.jobs.edit(world.other, changed, None, is_rescheduled=True)
    assert await world.jobs.list_jobs(world.other, JobFilter(), 10) == []
    assert await world.history.list_runs(world.other, job.job_id, 10) == []
    assert not await world.history.heartbeat(world.other, key, token)
    assert await world.history.retry(world.other, [key]) == {key}


async def test_an_edit_needs_the_version_before(world: World) -> None:
    job = await world.register(world.now_us)
    changed = replace(job, version=2, payload=Raw(b"2"))
    await world.jobs.edit(world.caller, changed, None, is_rescheduled=False)
    with pytest.raises(JobChanged):
        await world.jobs.edit(world.caller, changed, None, is_rescheduled=False)
    assert await world.jobs.get(world.caller, job.job_id) == changed


async def test_an_edit_cannot_take_a_name(world: World) -> None:
    await world.register(world.now_us, "taken")
    job = await world.register(world.now_us, "mine")
    with pytest.raises(JobNameTaken):
        await world.jobs.edit(
            world.caller, replace(job, version=2, name="taken"), None, is_rescheduled=False
        )
    renamed = replace(job, version=2, name="new")
    await world.jobs.edit(world.caller, renamed, None, is_rescheduled=False)
    assert (
        await world.jobs.register(world.caller, [Registration(world.job("mine"), world.now_us)])
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
    done = await world.jobs.edit(world.caller, changed, None, is_rescheduled=False)
    assert done.too_late == ()
    (checked,) = await world.runs.revalidate([key])
    assert (checked.run.state, checked.version) == (RunState.ARMED, 2)
    old = world.claim(job, due_us + MINUTE_US)
    assert await world.timers.arm(lease, [old]) == {RunKey(job.job_id, due_us + MINUTE_US)}
    assert await world.timers.arm(lease, [world.claim(changed, due_us + MINUTE_US)]) == set()


async def test_a_new_schedule_withdraws_what_is_armed(world: World) -> None:
    due_us = world.now_us + MINUTE_US
    job = await world.register(due_us)
    key, token = await world.arm(await world.own_all(), job, due_us)
    changed = replace(job, version=2)
    done = await world.jobs.edit(world.caller, changed, due_us + 7_000, is_rescheduled=True)
    assert done.too_late == ()
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, SkipReason.EDITED)
    assert await world.due(job) == due_us + 7_000
    await world.runs.settle([world.settled(key, token, RunState.SUCCEEDED)])
    assert await world.state(key) is RunState.SKIPPED


async def test_a_new_schedule_without_a_future_stops_the_timer(world: World) -> None:
    job = await world.register(world.now_us)
    finished = replace(job, version=2, state=JobState.FINISHED)
    await world.jobs.edit(world.caller, finished, None, is_rescheduled=True)
    assert await world.due(job) is None
    revived = replace(job, version=3, state=JobState.ACTIVE)
    await world.jobs.edit(world.caller, revived, world.now_us, is_rescheduled=True)
    assert await world.due(job) == world.now_us


async def test_pausing_stops_the_timer_and_withdraws_what_is_armed(world: World) -> None:
    due_us = world.now_us + MINUTE_US
    job = await world.register(due_us)
    lease = await world.own_all()
    key, _ = await world.arm(lease, job, due_us)
    with pytest.raises(JobChanged):
        await world.jobs.pause(world.caller, job.job_id, job.version + 1)
    done = await world.jobs.pause(world.caller, job.job_id, job.version)
    assert (done.job.state, done.job.version, done.too_late) == (JobState.PAUSED, 2, ())
    assert done.job.paused_at_us is not None
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, SkipReason.PAUSED)
    assert (run.missed_count, run.missed_since_us) == (1, due_us)
    assert await world.due(job) is None
    assert await world.jobs.pause(world.caller, job.job_id) == done
    lost = await world.timers.arm(lease, [world.claim(job, due_us + MINUTE_US)])
    assert lost == {RunKey(job.job_id, due_us + MINUTE_US)}


async def test_pausing_what_its_worker_has_paused_changes_nothing_more(world: World) -> None:
    due_us = world.now_us + MINUTE_US
    job = await world.register(due_us)
    lease = await world.own_all()
    key, _ = await world.arm(lease, job, due_us)
    await world.timers.pause_gone(lease, {job.job_id: 1})
    done = await world.jobs.pause(world.caller, job.job_id)
    assert (done.job.version, done.too_late) == (2, ())
    assert await world.state(key) is RunState.SKIPPED


async def test_a_pause_that_comes_too_late_says_so(world: World) -> None:
    due_us = world.now_us + HALF_SECOND_US
    job = await world.register(due_us)
    key, _ = await world.arm(await world.own_all(), job, due_us)
    done = await world.jobs.pause(world.caller, job.job_id)
    assert done.too_late == (key,)
    assert await world.state(key) is RunState.ARMED


async def test_resuming_starts_the_timer_under_the_new_version(world: World) -> None:
    job = await world.register(world.now_us)
    await world.jobs.pause(world.caller, job.job_id)
    done = await world.jobs.resume(world.caller, job.job_id, world.now_us + MINUTE_US)
    assert (done.job.state, done.job.version) == (JobState.ACTIVE, 3)
    assert done.job.paused_at_us is None
    again = await world.jobs.resume(world.caller, job.job_id, world.now_us)
    assert again.job == done.job
    assert await world.due(job) == world.now_us + MINUTE_US
    lease = await world.own_all()
    assert await world.timers.arm(lease, [world.claim(done.job, world.now_us + MINUTE_US)]) == set()


async def test_resuming_without_a_future_finishes(world: World) -> None:
    job = await world.register(world.now_us)
    await world.jobs.pause(world.caller, job.job_id)
    done = await world.jobs.resume(world.caller, job.job_id, None)
    assert done.job.state is JobState.FINISHED
    assert await world.due(job) is None


async def test_deleting_ends_what_has_not_been_sent_and_keeps_history(world: World) -> None:
    due_us = world.now_us + MINUTE_US
    job = await world.register(world.now_us)
    lease = await world.own_all()
    failed, token = await world.arm(lease, job, world.now_us)
    armed, _ = await world.arm(lease, job, due_us)
    await world.runs.settle([world.settled(failed, token, RunState.RETRYING, retry_at_us=due_us)])
    with pytest.raises(JobChanged):
        await world.jobs.delete(world.caller, job.job_id, job.version + 1)
    await world.jobs.delete(world.caller, job.job_id, job.version)
    with pytest.raises(JobNotFound):
        await world.jobs.delete(world.caller, job.job_id)
    assert await world.state(failed) is RunState.CANCELLED
    run, _ = await world.history.get_run(world.caller, armed)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, SkipReason.DELETED)
    horizon = await world.timers.load(ALL, due_us + MINUTE_US)
    assert (len(horizon), horizon.retries) == (0, ())
    assert await world.timers.read_jobs([job.job_id]) == []
    assert [row.version for row in await world.runs.revalidate([armed])] == [None]
    retry = ClaimedRetry(failed, due_us, world.token())
    assert await world.timers.arm_retries(lease, [retry]) == []
    assert (
        await world.jobs.register(world.caller, [Registration(world.job(job.name), world.now_us)])
        == set()
    )


async def test_what_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(JobNotFound):
        await world.jobs.get(world.caller, uuid4())
    with pytest.raises(JobNotFound):
        await world.jobs.resume(world.caller, uuid4(), None)


@pytest.mark.parametrize("change", ["pause", "edit"])
async def test_a_due_time_that_was_withdrawn_and_comes_back_is_armed_again(
    world: World, change: str
) -> None:
    due_us = world.now_us + MINUTE_US
    job = await world.register(due_us)
    lease = await world.own_all()
    key, old_token = await world.arm(lease, job, due_us)
    if change == "pause":
        await world.jobs.pause(world.caller, job.job_id)
        after = await world.jobs.resume(world.caller, job.job_id, due_us)
    else:
        edited = replace(job, version=2)
        after = await world.jobs.edit(world.caller, edited, due_us, is_rescheduled=True)
    assert await world.state(key) is RunState.SKIPPED
    again, token = await world.arm(lease, after.job, due_us)
    run, _ = await world.history.get_run(world.caller, again)
    assert (again, run.state, run.token, run.skip_reason) == (key, RunState.ARMED, token, None)
    assert (run.finished_at_us, run.missed_count, run.missed_since_us) == (None, None, None)
    assert await world.runs.settle([world.settled(key, old_token, RunState.SUCCEEDED)]) == {key}
    assert await world.runs.list_unfinished(lease, ALL, 9) == [key]


async def test_a_due_time_that_was_fired_is_not_armed_again(world: World) -> None:
    due_us = world.now_us
    job = await world.register(due_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, due_us)
    await world.runs.settle([world.settled(key, token, RunState.SUCCEEDED)])
    edited = replace(job, version=2)
    after = await world.jobs.edit(world.caller, edited, due_us, is_rescheduled=True)
    assert await world.timers.arm(lease, [world.claim(after.job, due_us)]) == {key}
    assert await world.state(key) is RunState.SUCCEEDED


@pytest.mark.parametrize(
    ("wait_us", "state"),
    [(MINUTE_US, RunState.CANCELLED), (HALF_SECOND_US, RunState.ARMED)],
)
async def test_deleting_reaches_an_armed_retry_or_says_that_it_is_too_late(
    world: World, wait_us: int, state: RunState
) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    retry_at_us = world.now_us + wait_us
    await world.runs.settle([world.settled(key, token, RunState.RETRYING, retry_at_us=retry_at_us)])
    again = ClaimedRetry(key, retry_at_us, world.token())
    assert len(await world.timers.arm_retries(lease, [again])) == 1
    acknowledged = await world.jobs.delete(world.caller, job.job_id)
    assert await world.state(key) is state
    assert acknowledged.too_late == ((key,) if state is RunState.ARMED else ())


async def test_deleting_skips_a_requested_run_that_is_armed_and_not_sent(world: World) -> None:
    job = await world.register(world.now_us + MINUTE_US)
    lease = await world.own_all()
    key = RunKey(job.job_id, world.now_us + MINUTE_US + 1)
    await world.history.request(world.caller, [RequestedRun(key=key, trigger=Trigger.MANUAL)])
    await world.timers.arm_retries(lease, [ClaimedRetry(key, key.due_us, world.token())])
    await world.jobs.delete(world.caller, job.job_id)
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, SkipReason.DELETED)


async def test_a_run_whose_job_is_gone_is_not_tried_again(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    await world.runs.settle([world.settled(key, token, RunState.DEAD)])
    await world.jobs.delete(world.caller, job.job_id)
    assert await world.history.retry(world.caller, [key]) == {key}
    assert await world.state(key) is RunState.DEAD


async def test_a_job_that_is_in_a_batch_twice_is_one_job(world: World) -> None:
    twice = Registration(world.job(), world.now_us)
    renamed = Registration(replace(twice.job, name="another"), world.now_us)
    assert await world.jobs.register(world.caller, [twice, twice, renamed]) == set()
    assert await world.jobs.list_jobs(world.caller, JobFilter(), 9) == [twice.job]
    assert len(await world.timers.load(ALL, world.now_us)) == 1


async def test_a_registration_that_is_sent_again_after_the_job_was_renamed_is_there(
    world: World,
) -> None:
    job = await world.register(world.now_us)
    renamed = replace(job, name="renamed", version=2)
    await world.jobs.edit(world.caller, renamed, None, is_rescheduled=False)
    assert await world.jobs.register(world.caller, [Registration(job, world.now_us)]) == set()


async def test_a_job_of_another_tenant_is_not_registered_again(world: World) -> None:
    job = await world.register(world.now_us)
    refused = await world.jobs.register(world.other, [Registration(job, world.now_us)])
    assert refused == {job.job_id}


async def test_nothing_is_nobodys_and_jobs_are_somebodys(world: World) -> None:
    nobody = Caller(uuid4(), "nobody")
    assert await world.jobs.register(nobody, []) == set()
    with pytest.raises(TenantNotFound):
        await world.jobs.register(nobody, [Registration(world.job(), world.now_us)])


async def test_a_job_that_was_edited_is_not_resumed_by_its_old_schedule(world: World) -> None:
    job = await world.register(world.now_us)
    paused = (await world.jobs.pause(world.caller, job.job_id)).job
    edited = replace(paused, version=paused.version + 1, priority=3)
    await world.jobs.edit(world.caller, edited, world.now_us + MINUTE_US, is_rescheduled=True)
    with pytest.raises(JobChanged):
        await world.jobs.resume(world.caller, job.job_id, world.now_us, paused.version)
    assert await world.due(job) is None
    for _ in range(2):  # the second finds its work done
        await world.jobs.resume(world.caller, job.job_id, world.now_us + 5_000, edited.version)
    assert await world.due(job) == world.now_us + 5_000


async def test_what_a_job_was_paused_over_is_in_its_history(world: World) -> None:
    job = await world.register(world.now_us + MINUTE_US)
    paused = (await world.jobs.pause(world.caller, job.job_id)).job
    skip = Skip(
        reason=SkipReason.PAUSED,
        count=3,
        first_us=world.now_us - 3 * MINUTE_US,
        last_us=world.now_us - MINUTE_US,
    )
    for _ in range(2):  # the second finds its work done
        await world.jobs.resume(world.caller, job.job_id, world.now_us, paused.version, skip)
    (run,) = await world.history.list_runs(world.caller, job.job_id, 9)
    assert (run.due_us, run.missed_since_us, run.missed_count) == (skip.last_us, skip.first_us, 3)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, SkipReason.PAUSED)
    assert run.finished_at_us is not None
    assert await world.due(job) == world.now_us


async def test_a_day_that_was_long_ago_is_skipped_too(world: World) -> None:
    job = await world.register(world.now_us + MINUTE_US)
    paused = (await world.jobs.pause(world.caller, job.job_id)).job
    long_ago_us = world.now_us - 400 * 24 * 60 * MINUTE_US
    skip = Skip(reason=SkipReason.PAUSED, count=1, first_us=long_ago_us, last_us=long_ago_us)
    await world.jobs.resume(world.caller, job.job_id, None, paused.version, skip)
    assert [run.due_us for run in await world.history.list_runs(world.caller, job.job_id, 9)] == [
        long_ago_us
    ]
    assert await world.job_state(job) is JobState.FINISHED


async def test_a_row_that_a_pause_withdrew_comes_to_stand_for_others(world: World) -> None:
    due_us = world.now_us + MINUTE_US
    job = await world.register(due_us)
    lease = await world.own_all()
    key, _ = await world.arm(lease, job, due_us)
    paused = (await world.jobs.pause(world.caller, job.job_id)).job
    skip = Skip(reason=SkipReason.PAUSED, count=2, first_us=due_us - MINUTE_US, last_us=due_us)
    await world.jobs.resume(world.caller, job.job_id, due_us + MINUTE_US, paused.version, skip)
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.state, run.missed_count, run.missed_since_us) == (
        RunState.SKIPPED,
        2,
        due_us - MINUTE_US,
    )
