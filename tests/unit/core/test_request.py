from uuid import UUID

import pytest
from msgspec import Raw
from msgspec.structs import replace

from wheelsched.core.model import HttpTarget, Job, Lane, Run, RunKey, RunState, Trigger
from wheelsched.core.policies.overlap import Fire, Queue, decide
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy
from wheelsched.core.request import MAX_BACKFILL, backfill, count_backfill, retry, trigger
from wheelsched.errors import BackfillTooLarge, IllegalMove, InvalidField
from wheelsched.schedule.compile import compile_schedule
from wheelsched.schedule.parse import parse
from wheelsched.schedule.spec import Schedule
from wheelsched.values.duration import DAY, HOUR, MILLISECOND, SECOND

MIDNIGHT = 1_794_787_200 * SECOND  # 2026-11-16T00:00:00Z
NOW_US = MIDNIGHT + 10 * HOUR + 123


def hourly() -> tuple[Job, Schedule]:
    return registered("0 * * * *")


def registered(written: str) -> tuple[Job, Schedule]:
    spec = parse(written, now_us=MIDNIGHT)
    job = Job(
        job_id=UUID(int=7),
        tenant_id=UUID(int=1),
        name="report",
        schedule=Raw(b'"' + written.encode() + b'"'),
        spec=spec,
        anchor_us=MIDNIGHT,
        target=HttpTarget(url="https://example.org/hook"),
        created_at_us=MIDNIGHT,
        updated_at_us=MIDNIGHT,
    )
    return job, compile_schedule(spec, job.job_id, MIDNIGHT)


def test_a_triggered_run_is_due_now_and_waits_for_its_first_attempt() -> None:
    job, _ = hourly()
    run = trigger(job, NOW_US)
    assert run.trigger is Trigger.MANUAL
    assert run.state is RunState.RETRYING
    assert run.attempt == 0
    assert run.due_us == run.scheduled_us == run.retry_at_us == NOW_US


def test_a_triggered_run_never_has_the_key_of_a_scheduled_one() -> None:
    job, schedule = hourly()
    run = trigger(job, MIDNIGHT)
    assert schedule.last_before(MIDNIGHT + 1) == MIDNIGHT
    assert run.due_us % MILLISECOND


def test_a_backfill_has_a_run_for_each_due_time_of_its_range() -> None:
    job, schedule = hourly()
    runs = backfill(job, schedule, MIDNIGHT, MIDNIGHT + 3 * HOUR, NOW_US)
    assert [run.scheduled_us for run in runs] == [MIDNIGHT, MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR]
    assert len({run.key for run in runs}) == 3
    assert all(run.trigger is Trigger.BACKFILL for run in runs)
    assert all(run.due_us >= NOW_US for run in runs)


def test_the_preview_counts_the_runs_of_the_backfill() -> None:
    job, schedule = hourly()
    for until_us in (MIDNIGHT + 1, MIDNIGHT + HOUR, MIDNIGHT + HOUR + 1, MIDNIGHT + 10 * HOUR):
        runs = backfill(job, schedule, MIDNIGHT, until_us, NOW_US)
        assert count_backfill(schedule, MIDNIGHT, until_us, NOW_US) == len(runs)


@pytest.mark.parametrize(
    ("since_us", "until_us"),
    [(MIDNIGHT, MIDNIGHT), (MIDNIGHT + 1, MIDNIGHT), (MIDNIGHT, NOW_US + 1)],
)
def test_a_backfill_goes_forward_and_not_past_now(since_us: int, until_us: int) -> None:
    job, schedule = hourly()
    with pytest.raises(InvalidField) as caught:
        backfill(job, schedule, since_us, until_us, NOW_US)
    assert caught.value.pointer == "/until"


def test_a_backfill_may_reach_up_to_now() -> None:
    job, schedule = hourly()
    assert len(backfill(job, schedule, MIDNIGHT, NOW_US, NOW_US)) == 11


def test_a_backfill_too_large_for_one_request_is_refused_with_its_count() -> None:
    job, schedule = registered("* * * * * *")
    with pytest.raises(BackfillTooLarge, match=r"there are 36,000 due times"):
        backfill(job, schedule, MIDNIGHT, MIDNIGHT + 10 * HOUR, NOW_US)
    until_us = MIDNIGHT + MAX_BACKFILL * SECOND
    runs = backfill(job, schedule, MIDNIGHT, until_us, MIDNIGHT + DAY)
    assert len({run.key for run in runs}) == MAX_BACKFILL
    assert all(run.due_us % MILLISECOND for run in runs)


def dead_run() -> Run:
    return Run(
        job_id=UUID(int=7),
        due_us=MIDNIGHT,
        tenant_id=UUID(int=1),
        state=RunState.DEAD,
        attempt=4,
        finished_at_us=MIDNIGHT + HOUR,
    )


def test_a_trigger_is_on_time_and_a_backfill_is_late() -> None:
    job, schedule = hourly()
    assert trigger(job, NOW_US).lane is Lane.ON_TIME
    runs = backfill(job, schedule, MIDNIGHT, MIDNIGHT + 3 * HOUR, NOW_US)
    assert {run.lane for run in runs} == {Lane.LATE}


def test_a_retry_by_a_person_begins_anew_in_the_late_lane() -> None:
    run = retry(dead_run(), NOW_US)
    assert (run.state, run.lane, run.retry_at_us) == (RunState.RETRYING, Lane.LATE, NOW_US)
    assert (run.attempt, run.counted_attempt, run.finished_at_us) == (4, 0, None)
    assert not run.has_begun
    assert replace(run, attempt=5).has_begun


@pytest.mark.parametrize("state", [RunState.ARMED, RunState.RUNNING, RunState.RETRYING])
def test_a_retry_of_an_unfinished_run_changes_nothing(state: RunState) -> None:
    run = replace(dead_run(), state=state, finished_at_us=None)
    assert retry(run, NOW_US) is run


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.SKIPPED])
def test_a_succeeded_or_skipped_run_is_not_retried(state: RunState) -> None:
    with pytest.raises(IllegalMove):
        retry(replace(dead_run(), state=state), NOW_US)


@pytest.mark.parametrize("choice", list(OnOverlap))
def test_a_retried_run_waits_for_the_live_one_and_is_never_skipped(choice: OnOverlap) -> None:
    policy = OverlapPolicy(policy=choice, max_concurrent=1)
    run = retry(dead_run(), NOW_US)
    live = RunKey(run.job_id, MIDNIGHT + HOUR)
    for others, decision in (((live,), Queue()), ((), Fire())):
        assert decide(policy, trigger=run.trigger, lane=run.lane, live=others, ahead=0) == decision
