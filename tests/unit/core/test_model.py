from uuid import UUID

import msgspec
import pytest
from msgspec import Raw

from wheelsched.core.model import (
    FINAL_STATES,
    UNFINISHED_STATES,
    Attempt,
    HttpTarget,
    Job,
    JobState,
    Lane,
    Run,
    RunKey,
    RunState,
    Trigger,
    format_run_id,
    parse_run_id,
    requested_due_us,
)
from wheelsched.core.outcome import Failed
from wheelsched.core.policies.policy_json import Policies, read_policies
from wheelsched.errors import InvalidRunId
from wheelsched.schedule.spec import Spec

JOB_ID = UUID("018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f")
TENANT_ID = UUID(int=1)
DUE_US = 1_794_816_000_000_000


def smallest_job() -> Job:
    return Job(
        job_id=JOB_ID,
        tenant_id=TENANT_ID,
        name="weekly-report",
        schedule=Raw(b'"0 9 * * 1"'),
        spec=Spec(kind="cron", expression="0 9 * * 1", timezone="America/New_York"),
        anchor_us=DUE_US,
        target=HttpTarget(url="https://example.org/hooks/report"),
        created_at_us=DUE_US,
        updated_at_us=DUE_US,
    )


def test_a_run_id_is_the_key_and_leads_back_to_it() -> None:
    key = RunKey(JOB_ID, DUE_US)
    assert format_run_id(key) == "018f3c2e7a9b7c3d8e4f5a6b7c8d9e0f-1794816000000000"
    assert parse_run_id(format_run_id(key)) == key


@pytest.mark.parametrize(
    "run_id",
    [
        "",
        "018f3c2e7a9b7c3d8e4f5a6b7c8d9e0f",
        "018f3c2e7a9b7c3d8e4f5a6b7c8d9e0f-",
        "018f3c2e7a9b7c3d8e4f5a6b7c8d9e0f--1",
        "018f3c2e7a9b7c3d8e4f5a6b7c8d9e0f-9223372036854775808",  # more than a bigint holds
        "018f3c2e7a9b7c3d8e4f5a6b7c8d9e0f-7258118400000000",  # the year 2200
        "018f3c2e7a9b7c3d8e4f5a6b7c8d9e0f-01",
        "018F3C2E7A9B7C3D8E4F5A6B7C8D9E0F-1",
        "018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f-1",
        "018f3c2e7a9b7c3d8e4f5a6b7c8d9e0f-1\n",
        "018f3c2e7a9b7c3d8e4f5a6b7c8d9e0f-" + "9" * 20,
        "018f3c2e7a9b7c3d8e4f5a6b7c8d9e0f-١",
    ],
)
def test_a_run_id_has_one_spelling(run_id: str) -> None:
    with pytest.raises(InvalidRunId):
        parse_run_id(run_id)


def test_a_scheduled_run_is_for_its_due_time() -> None:
    run = Run(job_id=JOB_ID, due_us=DUE_US, tenant_id=TENANT_ID, state=RunState.ARMED)
    assert run.scheduled_us == DUE_US
    assert run.key == (JOB_ID, DUE_US)
    assert run.run_id == format_run_id(run.key)


def test_a_backfill_run_is_for_the_due_time_it_stands_for() -> None:
    run = Run(
        job_id=JOB_ID,
        due_us=requested_due_us(DUE_US),
        tenant_id=TENANT_ID,
        state=RunState.RETRYING,
        trigger=Trigger.BACKFILL,
        backfill_of_us=123_000_000,
    )
    assert run.scheduled_us == 123_000_000


def test_after_a_retry_by_a_person_attempts_are_counted_anew() -> None:
    run = Run(
        job_id=JOB_ID,
        due_us=DUE_US,
        tenant_id=TENANT_ID,
        state=RunState.ARMED,
        attempt=5,
        attempts_before=4,
    )
    assert run.counted_attempt == 1


def test_the_attempt_of_an_armed_run_is_counted_when_it_comes_back() -> None:
    armed = Run(job_id=JOB_ID, due_us=DUE_US, tenant_id=TENANT_ID, state=RunState.ARMED)
    assert (armed.counted_attempt, armed.attempt_in_hand) == (0, 1)
    running = msgspec.structs.replace(armed, state=RunState.RUNNING, attempt=1)
    assert (running.counted_attempt, running.attempt_in_hand) == (1, 1)


def test_a_requested_run_is_due_now_but_never_at_a_whole_millisecond() -> None:
    assert requested_due_us(5_000) == 5_001
    assert requested_due_us(5_001) == 5_001
    assert requested_due_us(5_999) == 5_999


def test_the_runs_of_one_request_have_due_times_of_their_own() -> None:
    due_times = [requested_due_us(5_998, index) for index in range(4)]
    assert due_times == [5_998, 5_999, 6_001, 6_002]


def test_every_state_is_unfinished_or_final() -> None:
    assert {RunState.ARMED, RunState.RUNNING, RunState.RETRYING} == UNFINISHED_STATES
    assert set(RunState) == UNFINISHED_STATES | FINAL_STATES
    assert not UNFINISHED_STATES & FINAL_STATES


def test_a_job_that_says_little_has_the_defaults_of_the_contract() -> None:
    job = smallest_job()
    assert job.target == HttpTarget(url=job.target.name, method="POST", headers={}, batch=1)
    assert bytes(job.payload) == b"null"
    assert Policies(
        misfire=job.misfire,
        overlap=job.overlap,
        retry=job.retry,
        timeout_us=job.timeout_us,
        priority=job.priority,
    ) == read_policies({})
    assert job.idempotency_key == "{{job_id}}:{{scheduled_at_unix}}"
    assert (job.state, job.version, job.tags) == (JobState.ACTIVE, 1, {})


def test_a_run_that_was_only_armed_has_no_attempt() -> None:
    run = Run(job_id=JOB_ID, due_us=DUE_US, tenant_id=TENANT_ID, state=RunState.ARMED)
    assert (run.attempt, run.attempts_before, run.trigger) == (0, 0, Trigger.SCHEDULE)
    assert run.lane is Lane.ON_TIME


def test_an_attempt_keeps_its_outcome_through_json() -> None:
    attempt = Attempt(
        job_id=JOB_ID,
        due_us=DUE_US,
        attempt=1,
        token=1 << 32,
        shard=UUID(int=2),
        started_at_us=DUE_US,
        outcome=Failed(error="503 Service Unavailable", http_status=503),
    )
    assert msgspec.json.decode(msgspec.json.encode(attempt), type=Attempt) == attempt
