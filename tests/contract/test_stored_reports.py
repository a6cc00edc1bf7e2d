"""Outcomes of workers that pull, without a link to the shard, on memory and on Postgres."""

from random import Random

import pytest
from tests.contract.conftest import ALL, MINUTE_US, World

from wheelsched.core.model import JobState, RunKey, RunState
from wheelsched.core.outcome import Failed, Gone, Outcome, Rejected, Succeeded
from wheelsched.core.policies.policy import RetryPolicy
from wheelsched.delivery.queue.reports import StoredReports
from wheelsched.ports import Registration
from wheelsched.ports.work import Attempted, Reported, WorkerOutcome

FAILED = Failed(error="boom")
GONE = Gone(error="closed", http_status=None)


def reports_of(world: World) -> StoredReports:
    return StoredReports(world.history, world.jobs, lambda: world.now_us, Random(1))


async def armed(world: World, **changes: object) -> Attempted:
    """A run that was handed out; nothing was written about that."""
    job = world.job("report", **changes)
    assert await world.jobs.register(world.caller, [Registration(job, world.now_us)]) == set()
    return Attempted(*await world.arm(await world.own_all(), job, world.now_us))


async def finish(world: World, attempt: Attempted, outcome: Outcome) -> Reported:
    reported = WorkerOutcome(attempt=attempt, outcome=outcome)
    (answer,) = await reports_of(world).finish(world.caller.tenant_id, [reported])
    return answer


async def test_a_success_ends_the_run(world: World) -> None:
    attempt = await armed(world)
    assert (await finish(world, attempt, Succeeded())).is_accepted
    run, _ = await world.history.get_run(world.caller, attempt.key)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)
    assert run.finished_at_us == world.now_us


async def test_a_failure_is_retried_by_the_policy_of_the_job(world: World) -> None:
    attempt = await armed(world, retry=RetryPolicy(max_attempts=2))
    assert (await finish(world, attempt, FAILED)).is_accepted
    (waiting,) = (await world.timers.load(ALL, world.now_us + MINUTE_US)).retries
    assert waiting.key == attempt.key


@pytest.mark.parametrize("outcome", [FAILED, Rejected(error="no")])
async def test_the_last_failure_is_the_end(world: World, outcome: Outcome) -> None:
    attempt = await armed(world, retry=RetryPolicy(max_attempts=1))
    assert (await finish(world, attempt, outcome)).is_accepted
    assert await world.state(attempt.key) is RunState.DEAD


@pytest.mark.parametrize("outcome", [Succeeded(), Rejected(error="no")])
async def test_an_outcome_whose_receipt_was_lost_is_accepted_again(
    world: World, outcome: Outcome
) -> None:
    attempt = await armed(world)
    for _ in range(2):
        assert (await finish(world, attempt, outcome)).is_accepted


async def test_a_worker_that_is_gone_pauses_the_job(world: World) -> None:
    attempt = await armed(world)
    for _ in range(2):
        assert (await finish(world, attempt, GONE)).is_accepted
    assert await world.state(attempt.key) is RunState.DEAD
    job = await world.jobs.get(world.caller, attempt.key.job_id)
    assert job.state is JobState.PAUSED


async def test_a_job_that_has_changed_since_the_attempt_is_not_paused(world: World) -> None:
    attempt = await armed(world)
    job_id = attempt.key.job_id
    await world.jobs.pause(world.caller, job_id)
    world.now_us += MINUTE_US
    await world.jobs.resume(world.caller, job_id, world.now_us + MINUTE_US)
    for _ in range(2):
        assert (await finish(world, attempt, GONE)).is_accepted
    assert (await world.jobs.get(world.caller, job_id)).state is JobState.ACTIVE


async def test_a_stale_outcome_pauses_nothing(world: World) -> None:
    attempt = await armed(world)
    assert not (await finish(world, attempt._replace(token=attempt.token - 1), GONE)).is_accepted
    job = await world.jobs.get(world.caller, attempt.key.job_id)
    assert job.state is JobState.ACTIVE


async def test_a_deleted_job_is_not_paused(world: World) -> None:
    attempt = await armed(world)
    await world.jobs.delete(world.caller, attempt.key.job_id)
    await finish(world, attempt, GONE)
    assert await world.state(attempt.key) is RunState.DEAD


async def test_another_outcome_after_the_end_is_not_accepted(world: World) -> None:
    attempt = await armed(world)
    await finish(world, attempt, Succeeded())
    answer = await finish(world, attempt, FAILED)
    assert not answer.is_accepted
    assert answer.reason
    assert await world.state(attempt.key) is RunState.SUCCEEDED


async def test_an_outcome_of_an_earlier_attempt_changes_nothing(world: World) -> None:
    attempt = await armed(world)
    answer = await finish(world, attempt._replace(token=attempt.token - 1), Succeeded())
    assert not answer.is_accepted
    assert await world.state(attempt.key) is RunState.ARMED


async def test_an_outcome_of_an_unknown_run_is_not_accepted(world: World) -> None:
    attempt = await armed(world)
    unknown = Attempted(RunKey(attempt.key.job_id, 5), attempt.token)
    assert await finish(world, unknown, Succeeded()) == Reported(
        is_accepted=False, reason="no such run"
    )


async def test_a_tenant_cannot_end_a_run_of_another(world: World) -> None:
    attempt = await armed(world)
    reported = WorkerOutcome(attempt=attempt, outcome=Succeeded())
    (answer,) = await reports_of(world).finish(world.other.tenant_id, [reported])
    assert not answer.is_accepted
    (held,) = await reports_of(world).heartbeat(world.other.tenant_id, [attempt], [None])
    assert not held.is_held
    assert await world.state(attempt.key) is RunState.ARMED


async def test_answers_are_in_the_order_of_the_outcomes(world: World) -> None:
    attempt = await armed(world)
    unknown = Attempted(RunKey(attempt.key.job_id, 5), attempt.token)
    stale = attempt._replace(token=attempt.token - 1)
    outcomes = [
        WorkerOutcome(attempt=each, outcome=Succeeded())
        for each in (unknown, stale, attempt, unknown)
    ]
    answers = await reports_of(world).finish(world.caller.tenant_id, outcomes)
    assert [answer.is_accepted for answer in answers] == [False, False, True, False]


async def test_a_heartbeat_keeps_the_run(world: World) -> None:
    attempt = await armed(world)
    (held,) = await reports_of(world).heartbeat(world.caller.tenant_id, [attempt], [MINUTE_US])
    assert held.is_held
    (checked,) = await world.runs.revalidate([attempt.key])
    assert checked.heartbeat_at_us is not None
    assert checked.lease_us == MINUTE_US
