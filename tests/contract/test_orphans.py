"""Due times that have passed, and are not armed, when their timer is stopped."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from tests.contract.conftest import ALL, MINUTE_US, World

from wheelsched.core.model import Job, JobState, Run, RunKey, RunState, SkipReason
from wheelsched.ports import Plan, Registration
from wheelsched.schedule.spec import Spec

DAY_US = 24 * 60 * MINUTE_US
CHANGES = ["pause", "edit", "end", "delete", "gone"]
REASONS = {
    "pause": SkipReason.PAUSED,
    "edit": SkipReason.EDITED,
    "end": SkipReason.EDITED,
    "delete": SkipReason.DELETED,
    "gone": SkipReason.PAUSED,
}


async def change(world: World, job: Job, verb: str) -> None:
    """Stops the timer of a job, or moves it an hour ahead."""
    match verb:
        case "pause":
            await world.jobs.pause(world.caller, job.job_id)
        case "edit":
            later_us = world.now_us + 60 * MINUTE_US
            edited = replace(job, version=job.version + 1, spec=replace(job.spec, timezone="UTC"))
            await world.jobs.edit(world.caller, edited, later_us, is_rescheduled=True)
        case "end":
            ended = replace(job, version=job.version + 1, state=JobState.FINISHED)
            await world.jobs.edit(world.caller, ended, None, is_rescheduled=True)
        case "delete":
            await world.jobs.delete(world.caller, job.job_id)
        case "gone":
            lease = await world.own_all()
            await world.timers.pause_gone(lease, {job.job_id: job.version})


def minutes_ago(world: World, minutes: int) -> int:
    """A due time of the schedule that the jobs here have."""
    return world.now_us // MINUTE_US * MINUTE_US - minutes * MINUTE_US


async def runs_of(world: World, job: Job) -> list[Run]:
    found = await world.history.list_runs(world.caller, job.job_id, 9)
    return sorted(found, key=lambda run: run.due_us)


@pytest.mark.parametrize("verb", CHANGES)
async def test_due_times_that_have_passed_are_one_row(world: World, verb: str) -> None:
    first_us = minutes_ago(world, 2)
    job = await world.register(first_us)
    await change(world, job, verb)
    (run,) = await runs_of(world, job)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, REASONS[verb])
    assert run.missed_since_us == first_us
    assert run.due_us in (minutes_ago(world, 0), minutes_ago(world, -1))  # a minute may have passed
    assert run.missed_count == 1 + (run.due_us - first_us) // MINUTE_US
    assert run.finished_at_us is not None
    assert run.finished_at_us >= run.due_us
    later_us = world.now_us + 60 * MINUTE_US
    assert await world.due(job) == (later_us if verb == "edit" else None)


@pytest.mark.parametrize("verb", CHANGES)
async def test_a_future_due_time_has_no_row(world: World, verb: str) -> None:
    job = await world.register(world.now_us + 10 * MINUTE_US)
    await change(world, job, verb)
    assert await runs_of(world, job) == []


@pytest.mark.parametrize("verb", CHANGES)
async def test_a_schedule_that_has_ended_leaves_nothing(world: World, verb: str) -> None:
    due_us = minutes_ago(world, 1)
    job = await world.register(due_us)
    lease = await world.own_all()
    await world.timers.arm(lease, [world.claim(job, due_us, next_due_us=None)])
    await change(world, job, verb)
    assert [(run.due_us, run.state) for run in await runs_of(world, job)] == [
        (due_us, RunState.ARMED)
    ]


@pytest.mark.parametrize("verb", CHANGES)
async def test_a_day_without_a_table_is_made(world: World, verb: str) -> None:
    due_us = world.now_us // DAY_US * DAY_US - 500 * DAY_US
    instant = datetime.fromtimestamp(due_us // 1_000_000, UTC).isoformat()
    job = world.job(spec=Spec(kind="at", expression=instant), anchor_us=due_us - 1)
    await world.jobs.register(world.caller, [Registration(job, due_us)])
    await change(world, job, verb)
    (run,) = await runs_of(world, job)
    assert (run.due_us, run.missed_since_us, run.missed_count) == (due_us, due_us, 1)
    assert run.skip_reason is REASONS[verb]


@pytest.mark.parametrize("verb", CHANGES)
async def test_a_row_that_is_there_stays_and_the_others_get_theirs(world: World, verb: str) -> None:
    """The timer is moved back to where it was before, over runs that have ended."""
    times_us = [minutes_ago(world, minutes) for minutes in (3, 2, 1)]
    job = await world.register(times_us[0])
    lease = await world.own_all()
    for due_us, next_us in ((times_us[0], times_us[2]), (times_us[2], world.now_us + DAY_US)):
        claim = world.claim(job, due_us, next_due_us=next_us)
        assert await world.timers.arm(lease, [claim]) == set()
        key = RunKey(job.job_id, due_us)
        done = world.settled(key, claim.runs[0].token, RunState.SUCCEEDED)
        assert await world.runs.settle([done]) == set()
    moved = replace(job, version=2, spec=replace(job.spec, end_us=times_us[2] + 1))
    await world.jobs.edit(world.caller, moved, times_us[0], is_rescheduled=True)
    await change(world, moved, verb)
    runs = await runs_of(world, job)
    assert [(run.due_us, run.state, run.missed_count) for run in runs] == [
        (times_us[0], RunState.SUCCEEDED, None),
        (times_us[1], RunState.SKIPPED, 1),
        (times_us[2], RunState.SUCCEEDED, None),
    ]


async def test_an_edit_that_keeps_a_due_time_leaves_it_to_its_run(world: World) -> None:
    """The API has read its clock before the due time, and the store after it."""
    due_us = minutes_ago(world, 0)
    job = await world.register(due_us - MINUTE_US)
    edited = replace(job, version=2)
    await world.jobs.edit(world.caller, edited, due_us, is_rescheduled=True)
    assert [(run.due_us, run.missed_count) for run in await runs_of(world, job)] == [
        (due_us - MINUTE_US, 1)
    ]
    lease = await world.own_all()
    key, _ = await world.arm(lease, edited, due_us)
    assert await world.state(key) is RunState.ARMED


async def test_a_change_that_moves_no_timer_leaves_it(world: World) -> None:
    due_us = minutes_ago(world, 0)
    job = await world.register(due_us)
    await world.jobs.edit(world.caller, replace(job, version=2), None, is_rescheduled=False)
    assert await runs_of(world, job) == []
    assert await world.due(job) == due_us


@pytest.mark.parametrize("ago_us", [MINUTE_US, 500 * DAY_US])
async def test_a_job_that_is_cancelled_by_an_application_leaves_its_due_time(
    world: World, ago_us: int
) -> None:
    """That of its timer alone: its schedule is gone when its shard hears of it."""
    for name, due_us in (("passed", world.now_us - ago_us), ("to come", world.now_us + DAY_US)):
        lease = await world.own_all()
        fields: dict[str, object] = {
            "name": name,
            "schedule": "0 9 * * 1",
            "target": {"url": "https://example.org/"},
        }
        job_id = await world.application.schedule(world.caller, fields)
        (entry,) = await world.plans.list_unplanned(ALL, 9)
        assert entry.draft is not None
        job = world.job(name, job_id=job_id, created_at_us=entry.draft.created_at_us)
        plan = Plan(number=entry.number, draft=entry.draft, registration=Registration(job, due_us))
        assert (await world.plans.plan(lease, [plan])).accepted == {job_id}
        assert await world.application.cancel(world.caller, job_id) is True
        (entry,) = await world.plans.list_unplanned(ALL, 9)
        for _ in range(2):  # the second finds its work done
            await world.plans.clear(lease, [entry.number])
        runs = await runs_of(world, job)
        assert [(run.due_us, run.state, run.skip_reason, run.missed_count) for run in runs] == (
            [(due_us, RunState.SKIPPED, SkipReason.DELETED, 1)] if name == "passed" else []
        )
        await world.leases.leave(lease)
