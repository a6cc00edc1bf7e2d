"""Loading and arming, on memory and on Postgres."""

import pytest
from tests.contract.conftest import ALL, MINUTE_US, World

from wheelsched.core.model import JobState, Lane, RunKey, RunState, SkipReason
from wheelsched.core.overdue import Unarmed
from wheelsched.core.partition import partition_of
from wheelsched.core.policies.misfire import Skip
from wheelsched.errors import FenceRaised, LeaseLost
from wheelsched.ports import NEVER_US, Adoption, ClaimedRetry, ClaimedRun, Retry

HALF_SECOND_US = 500_000


async def test_a_horizon_holds_what_is_due_in_the_partitions_asked_for(world: World) -> None:
    job = await world.register(world.now_us)
    later = await world.register(world.now_us + 1, "later")
    here = partition_of(job.job_id)
    assert list(await world.timers.load([here], world.now_us)) == [(job.job_id, world.now_us, 1)]
    elsewhere = set(ALL) - {here, partition_of(later.job_id)}
    assert list(await world.timers.load(elsewhere, world.now_us + 1)) == []
    assert len(await world.timers.load(ALL, world.now_us + 1)) == 2


async def test_an_empty_horizon(world: World) -> None:
    horizon = await world.timers.load(ALL, world.now_us)
    assert len(horizon) == 0
    assert horizon.retries == ()


async def test_definitions_come_back_as_they_were_written(world: World) -> None:
    job = await world.register(world.now_us)
    gone = world.job("gone")
    assert await world.timers.read_jobs([job.job_id, gone.job_id]) == [job]


async def test_arming_moves_the_timer_and_writes_the_run(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    run, attempts = await world.history.get_run(world.caller, key)
    assert (run.state, run.token, run.shard) == (RunState.ARMED, token, lease.shard_id)
    assert run.attempt == 0
    assert run.armed_at_us is not None
    assert attempts == []
    assert await world.due(job) == world.now_us + MINUTE_US


async def test_a_due_time_is_armed_once(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    assert await world.timers.arm(lease, [world.claim(job, world.now_us)]) == {key}
    checked = await world.runs.revalidate([key])
    assert [(row.run.state, row.run.token) for row in checked] == [(RunState.ARMED, token)]


async def test_the_lost_are_named_and_the_others_won(world: World) -> None:
    lease = await world.own_all()
    one, two = [await world.register(world.now_us, name) for name in ("one", "two")]
    await world.arm(lease, one, world.now_us)
    claims = [world.claim(one, world.now_us), world.claim(two, world.now_us)]
    assert await world.timers.arm(lease, claims) == {RunKey(one.job_id, world.now_us)}
    assert await world.state(RunKey(two.job_id, world.now_us)) is RunState.ARMED


async def test_an_old_version_wins_nothing(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    claim = world.claim(job, world.now_us, version=2)
    assert await world.timers.arm(lease, [claim]) == {RunKey(job.job_id, world.now_us)}
    assert await world.due(job) == world.now_us


async def test_a_lost_lease_arms_nothing(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    await world.leases.leave(lease)
    with pytest.raises(LeaseLost):
        await world.timers.arm(lease, [world.claim(job, world.now_us)])
    assert await world.due(job) == world.now_us


async def test_a_raised_fence_arms_nothing(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    renewed = await world.leases.release(lease, [])
    with pytest.raises(FenceRaised):
        await world.timers.arm(lease, [world.claim(job, world.now_us)])
    assert await world.timers.arm(renewed, [world.claim(job, world.now_us)]) == set()


async def test_a_misfire_writes_its_skip_and_its_runs_at_once(world: World) -> None:
    first_us = world.now_us - 10 * MINUTE_US
    job = await world.register(first_us)
    lease = await world.own_all()
    skip = Skip(
        reason=SkipReason.SUPERSEDED,
        count=8,
        first_us=first_us,
        last_us=world.now_us - 3 * MINUTE_US,
    )
    runs = tuple(ClaimedRun(world.now_us - n * MINUTE_US, world.token()) for n in (2, 1))
    claim = world.claim(job, first_us, next_due_us=world.now_us, runs=runs, skip=skip)
    assert await world.timers.arm(lease, [claim]) == set()
    history = await world.history.list_runs(world.caller, job.job_id, 10)
    assert [(run.due_us, run.state) for run in history] == [
        (world.now_us - MINUTE_US, RunState.ARMED),
        (world.now_us - 2 * MINUTE_US, RunState.ARMED),
        (world.now_us - 3 * MINUTE_US, RunState.SKIPPED),
    ]
    skipped = history[-1]
    assert (skipped.skip_reason, skipped.missed_count) == (SkipReason.SUPERSEDED, 8)
    assert skipped.missed_since_us == first_us
    assert await world.due(job) == world.now_us
    assert await world.timers.arm(lease, [claim]) == {
        claim.key,
        *(RunKey(job.job_id, run.due_us) for run in runs),
    }


async def test_a_claim_with_nothing_but_a_skip_can_be_lost(world: World) -> None:
    due_us = world.now_us - 10 * MINUTE_US
    jobs = [await world.register(due_us, name) for name in ("one", "two")]
    lease = await world.own_all()
    skip = Skip(reason=SkipReason.MISFIRE_SKIP, count=1, first_us=due_us, last_us=due_us)
    stale, good = (
        world.claim(job, due_us, version=version, runs=(), skip=skip)
        for job, version in zip(jobs, (2, 1), strict=True)
    )
    assert await world.timers.arm(lease, [stale, good]) == {stale.key}
    assert await world.due(jobs[0]) == due_us
    assert await world.history.list_runs(world.caller, jobs[0].job_id, 10) == []
    assert await world.timers.arm(lease, [stale, good]) == {stale.key, good.key}


async def test_missing_daily_tables_are_created(world: World) -> None:
    long_ago_us = world.now_us - 400 * 24 * 60 * MINUTE_US
    job = await world.register(long_ago_us)
    lease = await world.own_all()
    key, _ = await world.arm(lease, job, long_ago_us)
    assert await world.state(key) is RunState.ARMED


async def test_a_run_that_exists_already_is_lost_and_the_schedule_goes_on(world: World) -> None:
    """A job that is paused too late and then resumed from before meets its own past."""
    due_us = world.now_us
    job = await world.register(due_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, due_us)
    await world.jobs.pause(world.caller, job.job_id)
    resumed = await world.jobs.resume(world.caller, job.job_id, due_us)
    other = await world.register(due_us, "other")
    claims = [world.claim(resumed.job, due_us), world.claim(other, due_us)]
    assert await world.timers.arm(lease, claims) == {key}
    assert await world.due(job) == due_us + MINUTE_US
    assert [run.token for run in await world.history.list_runs(world.caller, job.job_id, 9)] == [
        token
    ]
    assert await world.state(RunKey(other.job_id, due_us)) is RunState.ARMED


async def test_a_schedule_that_has_ended_is_loaded_as_such_and_finishes(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    await world.timers.finish(lease, [job.job_id])
    assert await world.job_state(job) is JobState.ACTIVE
    claim = world.claim(job, world.now_us, next_due_us=None)
    assert await world.timers.arm(lease, [claim]) == set()
    assert await world.due(job) == NEVER_US
    await world.timers.finish(lease, [job.job_id])
    assert await world.job_state(job) is JobState.FINISHED
    assert await world.due(job) is None


async def test_a_worker_that_is_gone_pauses_its_job(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    await world.timers.pause_gone(lease, {job.job_id: 1})
    await world.timers.pause_gone(lease, {job.job_id: 1})
    paused = await world.jobs.get(world.caller, job.job_id)
    assert (paused.state, paused.version) == (JobState.PAUSED, 2)
    assert paused.paused_at_us is not None
    assert await world.due(job) is None


async def test_a_worker_that_is_gone_withdraws_what_is_armed_for_later(world: World) -> None:
    soon_us, later_us = world.now_us + HALF_SECOND_US, world.now_us + MINUTE_US
    soon, later = await world.register(soon_us), await world.register(later_us, "later")
    other = await world.register(later_us, "other")
    lease = await world.own_all()
    too_late, _ = await world.arm(lease, soon, soon_us)
    withdrawn, _ = await world.arm(lease, later, later_us)
    untouched, _ = await world.arm(lease, other, later_us)
    await world.timers.pause_gone(lease, {soon.job_id: 1, later.job_id: 1})
    run, _ = await world.history.get_run(world.caller, withdrawn)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, SkipReason.PAUSED)
    assert (run.missed_count, run.missed_since_us) == (1, later_us)
    assert await world.state(too_late) is RunState.ARMED
    assert await world.state(untouched) is RunState.ARMED


async def test_a_retry_is_loaded_armed_once_and_settled(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    retry_at_us = world.now_us + 5_000_000
    failed = world.settled(
        key, token, RunState.RETRYING, retry_at_us=retry_at_us, error="boom", http_status=500
    )
    assert await world.runs.settle([failed]) == set()
    assert (await world.timers.load(ALL, retry_at_us)).retries == (Retry(key, retry_at_us),)
    assert (await world.timers.load(ALL, retry_at_us - 1)).retries == ()

    again = ClaimedRetry(key, retry_at_us, world.token())
    (armed,) = await world.timers.arm_retries(lease, [again])
    assert armed == (await world.history.get_run(world.caller, key))[0]
    assert (armed.state, armed.token, armed.attempt) == (RunState.ARMED, again.token, 1)
    assert await world.timers.arm_retries(lease, [again]) == []
    assert (await world.timers.load(ALL, retry_at_us)).retries == ()

    done = world.settled(key, again.token, RunState.SUCCEEDED, http_status=200)
    assert await world.runs.settle([done]) == set()
    run, attempts = await world.history.get_run(world.caller, key)
    assert (run.state, run.attempt, run.http_status) == (RunState.SUCCEEDED, 2, 200)
    assert [(row.attempt, row.token, row.shard) for row in attempts] == [(1, token, lease.shard_id)]


async def test_a_retry_needs_the_lease(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    failed = world.settled(key, token, RunState.RETRYING, retry_at_us=world.now_us)
    await world.runs.settle([failed])
    await world.leases.leave(lease)
    with pytest.raises(LeaseLost):
        await world.timers.arm_retries(lease, [ClaimedRetry(key, world.now_us, world.token())])
    assert await world.state(key) is RunState.RETRYING


async def test_of_a_job_that_was_read_before_only_newer_retries_are_reloaded(world: World) -> None:
    one, two = [await world.register(world.now_us, name) for name in ("one", "two")]
    lease = await world.own_all()
    retries = {}
    for job in (one, two):
        key, token = await world.arm(lease, job, world.now_us)
        retry = Retry(key, world.now_us + 5)
        failed = world.settled(key, token, RunState.RETRYING, retry_at_us=retry.retry_at_us)
        await world.runs.settle([failed])
        retries[job.job_id] = retry
    until_us = world.now_us + MINUTE_US
    for since_us, found in ((4, [one, two]), (5, [two])):
        known_us = {one.job_id: world.now_us + since_us}
        horizon = await world.timers.reload(retries, until_us, known_us)
        assert set(horizon.retries) == {retries[job.job_id] for job in found}
        assert len(horizon) == 2


async def test_the_oldest_of_what_waits_to_be_armed_is_found_in_each_partition(
    world: World,
) -> None:
    """Whoever owns it, and whoever asks: a shard, or an API that speaks for no tenant."""
    job = await world.register(world.now_us)
    partition = partition_of(job.job_id)
    others = [other for other in ALL if other != partition][:3]
    for timers in (world.timers, world.api_timers):
        found = {each.partition: each for each in await timers.oldest_unarmed([partition, *others])}
        assert found[partition] == Unarmed(partition, world.now_us, None)
        assert found.keys() == {partition, *others}
        assert all(found[other] == Unarmed(other, None, None) for other in others)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    failed = world.settled(key, token, RunState.RETRYING, retry_at_us=world.now_us + 5)
    await world.runs.settle([failed])
    (waiting,) = await world.timers.oldest_unarmed([partition])
    assert waiting == Unarmed(partition, world.now_us + MINUTE_US, world.now_us + 5)
    await world.timers.arm_retries(lease, [ClaimedRetry(key, world.now_us + 5, world.token())])
    await world.jobs.pause(world.caller, job.job_id)
    assert await world.timers.oldest_unarmed([partition]) == [Unarmed(partition, None, None)]


async def test_reloading_reads_these_jobs_and_no_others(world: World) -> None:
    one, two, later = [
        await world.register(world.now_us + n, name)
        for n, name in ((0, "one"), (0, "two"), (1, "later"))
    ]
    lease = await world.own_all()
    key, token = await world.arm(lease, two, world.now_us)
    other, other_token = await world.arm(lease, one, world.now_us)
    for run, its_token in ((key, token), (other, other_token)):
        failed = world.settled(run, its_token, RunState.RETRYING, retry_at_us=world.now_us + 5)
        await world.runs.settle([failed])
    wanted = [two.job_id, later.job_id, world.job("gone").job_id]
    horizon = await world.timers.reload(wanted, world.now_us + 5)
    assert list(horizon) == [(later.job_id, world.now_us + 1, 1)]
    assert horizon.retries == (Retry(key, world.now_us + 5),)
    until_us = world.now_us + MINUTE_US
    horizon = await world.timers.reload(wanted, until_us)
    assert sorted(horizon) == sorted(
        [(two.job_id, until_us, 1), (later.job_id, world.now_us + 1, 1)]
    )
    assert len(await world.timers.reload([], until_us)) == 0


async def test_a_run_keeps_its_lane(world: World) -> None:
    first_us = world.now_us - 2 * MINUTE_US
    job = await world.register(first_us)
    lease = await world.own_all()
    late = (
        ClaimedRun(first_us, world.token(), Lane.LATE),
        ClaimedRun(first_us + MINUTE_US, world.token()),
    )
    claim = world.claim(job, first_us, next_due_us=world.now_us, runs=late)
    assert await world.timers.arm(lease, [claim]) == set()
    await world.arm(lease, job, world.now_us)
    registry = await world.registry(lease)
    assert [run.lane for run in registry] == [Lane.LATE, Lane.ON_TIME, Lane.ON_TIME]


async def test_one_late_run_of_its_own_due_time_is_late(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    claim = world.claim(
        job, world.now_us, runs=(ClaimedRun(world.now_us, world.token(), Lane.LATE),)
    )
    assert await world.timers.arm(lease, [claim]) == set()
    (checked,) = await world.runs.revalidate([RunKey(job.job_id, world.now_us)])
    assert checked.run.lane is Lane.LATE


async def test_nothing_is_armed_in_a_partition_that_is_not_the_shards(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    key, token = await world.arm(lease, job, world.now_us)
    waiting = await world.register(world.now_us, "waiting")
    retried, its_token = await world.arm(lease, waiting, world.now_us)
    failed = world.settled(retried, its_token, RunState.RETRYING, retry_at_us=world.now_us)
    await world.runs.settle([failed])
    lease = await world.leases.release(lease, ALL)
    claims = [
        world.claim(job, world.now_us + MINUTE_US),
        world.claim(
            waiting,
            world.now_us + MINUTE_US,
            runs=(ClaimedRun(world.now_us + MINUTE_US, world.token(), Lane.LATE),),
        ),
    ]
    assert await world.timers.arm(lease, claims) == {claim.key for claim in claims}
    retry = ClaimedRetry(retried, world.now_us, world.token())
    assert await world.timers.arm_retries(lease, [retry]) == []
    assert await world.runs.adopt(lease, [Adoption(key, token, world.token())]) == {key}


async def test_a_pause_that_is_sent_again_does_not_undo_a_resumption(world: World) -> None:
    job = await world.register(world.now_us)
    lease = await world.own_all()
    await world.timers.pause_gone(lease, {job.job_id: 1})
    await world.jobs.resume(world.caller, job.job_id, world.now_us)
    await world.timers.pause_gone(lease, {job.job_id: 1})
    assert await world.job_state(job) is JobState.ACTIVE
    assert await world.due(job) == world.now_us
