"""Outcomes that come late, come by the API, or follow a hand-over, on memory and on Postgres."""

import pytest
from tests.contract.conftest import ALL, MINUTE_US, World

from wheelsched.core.model import RunKey, RunState
from wheelsched.core.partition import partition_of
from wheelsched.errors import RunNotFound
from wheelsched.ports import Adoption, ClaimedRetry, Lease


async def fail(world: World, lease: Lease) -> tuple[RunKey, int]:
    """A run whose attempt has timed out and that waits for the next."""
    job = await world.register(world.now_us)
    key, token = await world.arm(lease, job, world.now_us)
    failed = world.settled(key, token, RunState.RETRYING, retry_at_us=world.now_us + MINUTE_US)
    assert await world.runs.settle([failed]) == set()
    return key, token


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED])
async def test_a_late_outcome_ends_a_run_that_waits_for_its_next_attempt(
    world: World, state: RunState
) -> None:
    lease = await world.own_all()
    key, token = await fail(world, lease)
    late = world.settled(key, token, state)
    assert await world.runs.settle([late]) == set()
    run, attempts = await world.history.get_run(world.caller, key)
    assert (run.state, run.attempt, run.retry_at_us) == (state, 1, None)
    assert run.finished_at_us == late.ending.finished_at_us
    assert len(attempts) == 1
    assert (await world.timers.load(ALL, world.now_us + MINUTE_US)).retries == ()
    assert await world.runs.list_unfinished(lease, ALL, 9) == []
    dead = await world.list_dead()
    assert dead == ([key] if state is RunState.DEAD else [])


@pytest.mark.parametrize("state", [RunState.RETRYING, RunState.RUNNING, RunState.SKIPPED])
async def test_other_late_outcomes_say_nothing_new(world: World, state: RunState) -> None:
    key, token = await fail(world, await world.own_all())
    before, _ = await world.history.get_run(world.caller, key)
    late = world.settled(key, token, state, retry_at_us=world.now_us, http_status=500)
    assert await world.runs.settle([late]) == set()
    assert (await world.history.get_run(world.caller, key))[0] == before


async def test_a_late_outcome_is_stale_when_the_next_attempt_is_armed(world: World) -> None:
    lease = await world.own_all()
    key, token = await fail(world, lease)
    again = ClaimedRetry(key, world.now_us + MINUTE_US, world.token())
    await world.timers.arm_retries(lease, [again])
    assert await world.runs.settle([world.settled(key, token, RunState.SUCCEEDED)]) == {key}
    assert await world.state(key) is RunState.ARMED


@pytest.mark.parametrize("state", [RunState.DEAD, RunState.CANCELLED])
async def test_an_end_that_is_sent_again_does_not_undo_a_retry(
    world: World, state: RunState
) -> None:
    """The answer to the settlement was lost, and a person was quicker than its replay."""
    job = await world.register(world.now_us)
    key, token = await world.arm(await world.own_all(), job, world.now_us)
    ended = world.settled(key, token, state)
    await world.runs.settle([ended])
    await world.history.retry(world.caller, [key])
    assert await world.runs.settle([ended]) == set()
    assert await world.state(key) is RunState.RETRYING
    assert await world.runs.settle([world.settled(key, token, RunState.SUCCEEDED)]) == set()
    assert await world.state(key) is RunState.SUCCEEDED


async def test_a_worker_answers_once(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    await world.runs.settle([world.settled(key, token, RunState.RUNNING, http_status=202)])
    done = world.settled(key, token, RunState.SUCCEEDED)
    for _ in range(2):
        assert await world.history.answer(world.caller, done) is True
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)


async def test_a_worker_that_fails_waits_for_its_next_attempt(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    failed = world.settled(
        key, token, RunState.RETRYING, retry_at_us=world.now_us + MINUTE_US, error="boom"
    )
    assert await world.history.answer(world.caller, failed) is True
    (waiting,) = (await world.timers.load(ALL, world.now_us + MINUTE_US)).retries
    assert waiting.key == key
    _, attempts = await world.history.get_run(world.caller, key)
    assert [(row.attempt, row.token) for row in attempts] == [(1, token)]
    assert await world.history.answer(
        world.caller, world.settled(key, token, RunState.DEAD, error="really")
    )
    assert await world.list_dead() == [key]


async def test_a_stale_answer_changes_nothing(world: World) -> None:
    job = await world.register(world.now_us)
    key, token = await world.arm(await world.own_all(), job, world.now_us)
    stale = world.settled(key, token - 1, RunState.SUCCEEDED)
    for _ in range(2):
        assert await world.history.answer(world.caller, stale) is False
    assert await world.state(key) is RunState.ARMED


async def test_a_tenant_cannot_report_for_anothers_run(world: World) -> None:
    job = await world.register(world.now_us)
    key, token = await world.arm(await world.own_all(), job, world.now_us)
    with pytest.raises(RunNotFound):
        await world.history.answer(world.other, world.settled(key, token, RunState.SUCCEEDED))
    assert await world.state(key) is RunState.ARMED


async def test_a_run_ends_in_good_order_after_its_job_was_deleted(world: World) -> None:
    lease = await world.own_all()
    key, _ = await fail(world, lease)
    again = ClaimedRetry(key, world.now_us + MINUTE_US, world.token())
    await world.timers.arm_retries(lease, [again])
    accepted = world.settled(key, again.token, RunState.RUNNING, http_status=202)
    await world.runs.settle([accepted])
    await world.jobs.delete(world.caller, key.job_id)
    assert await world.state(key) is RunState.RUNNING
    done = world.settled(key, again.token, RunState.SUCCEEDED)
    assert await world.history.answer(world.caller, done) is True
    assert await world.state(key) is RunState.SUCCEEDED
    assert await world.runs.list_unfinished(lease, ALL, 9) == []


async def hand_over(world: World, lease: Lease, due_us: int) -> tuple[RunKey, int, Lease]:
    """A run that its shard goes on with while its partition is free for another."""
    job = await world.register(due_us)
    key, token = await world.arm(lease, job, due_us)
    carried = world.settled(
        key,
        token,
        RunState.RUNNING,
        started_at_us=None,
        finished_at_us=None,
        lateness_us=None,
    )
    assert await world.runs.settle([carried]) == set()
    return key, token, await world.leases.release(lease, [partition_of(job.job_id)])


async def test_a_run_that_is_handed_over_ends_by_its_old_owner_as_one_attempt(
    world: World,
) -> None:
    old = await world.own_all()
    key, token, _ = await hand_over(world, old, world.now_us)
    new = await world.own_all()
    (seen,) = await world.registry(new)
    assert (seen.key, seen.state, seen.http_status) == (key, RunState.RUNNING, None)
    assert (seen.shard, seen.token, seen.started_at_us) == (old.shard_id, token, None)
    done = world.settled(key, token, RunState.SUCCEEDED, http_status=200)
    assert await world.runs.settle([done]) == set()
    run, attempts = await world.history.get_run(world.caller, key)
    assert (run.state, run.attempt, run.http_status, attempts) == (RunState.SUCCEEDED, 1, 200, [])
    assert (run.started_at_us, run.lateness_us) == (
        done.ending.started_at_us,
        done.ending.lateness_us,
    )


async def test_a_run_that_is_handed_over_and_fails_has_made_one_attempt(world: World) -> None:
    old = await world.own_all()
    key, token, _ = await hand_over(world, old, world.now_us)
    failed = world.settled(key, token, RunState.RETRYING, retry_at_us=world.now_us)
    assert await world.runs.settle([failed]) == set()
    run, attempts = await world.history.get_run(world.caller, key)
    assert (run.state, run.attempt) == (RunState.RETRYING, 1)
    assert [(row.attempt, row.shard) for row in attempts] == [(1, old.shard_id)]


async def test_a_run_whose_carrier_died_is_adopted(world: World) -> None:
    old = await world.own_all()
    key, token, _ = await hand_over(world, old, world.now_us)
    new = await world.own_all()
    newer = 2 << 32
    assert await world.runs.adopt(new, [Adoption(key, token, newer)]) == set()
    run, _ = await world.history.get_run(world.caller, key)
    assert (run.state, run.shard, run.token) == (RunState.RUNNING, new.shard_id, newer)
    assert run.attempt_in_hand == 1
    assert await world.runs.settle([world.settled(key, token, RunState.SUCCEEDED)]) == {key}
    assert await world.runs.settle([world.settled(key, newer, RunState.SUCCEEDED)]) == set()
    assert (await world.history.get_run(world.caller, key))[0].attempt == 1


async def test_a_run_that_is_handed_over_is_not_withdrawn_and_the_answer_says_so(
    world: World,
) -> None:
    due_us = world.now_us + MINUTE_US
    key, _, _ = await hand_over(world, await world.own_all(), due_us)
    done = await world.jobs.pause(world.caller, key.job_id)
    assert done.too_late == (key,)
    assert await world.state(key) is RunState.RUNNING
    assert (await world.jobs.delete(world.caller, key.job_id)).too_late == (key,)
    assert await world.state(key) is RunState.RUNNING
