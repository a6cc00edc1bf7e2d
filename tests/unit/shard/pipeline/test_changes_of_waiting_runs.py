"""Changes of jobs whose runs wait for a worker: what waits is withdrawn."""

import pytest
from msgspec.structs import replace
from tests.unit.shard.pulling import QUEUE, Process
from tests.unit.shard.world import World

from wheelsched.config import QueueConfig, ShardConfig
from wheelsched.core.model import Job, QueueTarget, Run, RunKey, RunState, SkipReason, Trigger
from wheelsched.core.outcome import Failed, Gone
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import RequestedRun
from wheelsched.values.duration import SECOND

WORK = QueueTarget(queue=QUEUE)
ONCE = RetryPolicy(max_attempts=1)
SMALL = ShardConfig(queue=QueueConfig(idle_runs=10, max_parked=50))


async def waiting(world: World, retry: RetryPolicy = ONCE) -> Job:
    """A job whose run waits for a worker."""
    job = await world.register("+10", queue=WORK, retry=retry)
    world.start()
    await world.advance(15)
    assert await world.states(job) == [RunState.ARMED]
    return job


async def only_run(world: World, job: Job) -> Run:
    (run,) = await world.runs(job)
    return run


async def handed_out(world: World) -> Process:
    """A process that takes whatever waits."""
    process = Process(world)
    process.lend(100)
    await world.advance(2)
    return process


async def test_a_pause_withdraws_what_waits(world: World) -> None:
    job = await waiting(world)
    acknowledged = await world.store.jobs.pause(world.caller, job.job_id)
    assert acknowledged.too_late == ((await only_run(world, job)).key,)
    await world.advance(1)
    run = await only_run(world, job)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, SkipReason.PAUSED)
    assert run.attempt == 0
    assert (await handed_out(world)).runs == []


async def test_a_pause_withdraws_what_is_parked(world: World) -> None:
    jobs = await world.register_many([f"+{10 + number}" for number in range(20)], queue=WORK)
    world.start(config=SMALL)
    await world.advance(35)
    await world.store.jobs.pause(world.caller, jobs[-1].job_id)
    await world.advance(1)
    assert (await only_run(world, jobs[-1])).skip_reason is SkipReason.PAUSED
    assert len((await handed_out(world)).runs) == 19


async def test_a_pause_withdraws_what_waits_for_an_earlier_run(world: World) -> None:
    overlap = OverlapPolicy(policy=OnOverlap.QUEUE)
    job = await world.register("every 10s", queue=WORK, overlap=overlap)
    world.start()
    await world.advance(1)
    process = Process(world)
    process.lend(1)
    await world.advance(10)
    (taken,) = process.runs
    await process.beat(taken)
    await world.advance(10)
    await world.store.jobs.pause(world.caller, job.job_id)
    await world.advance(1)
    states = {run.key: run.state for run in await world.runs(job)}
    assert states.pop(taken.attempt.key) is RunState.ARMED
    assert set(states.values()) == {RunState.SKIPPED}
    await process.finish(taken)
    process.lend(10)
    await world.advance(2)
    assert process.runs == [taken]


async def test_a_pause_does_not_withdraw_what_a_worker_has(world: World) -> None:
    job = await waiting(world)
    process = await handed_out(world)
    await world.store.jobs.pause(world.caller, job.job_id)
    await world.advance(1)
    await process.finish(*process.runs)
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_a_run_that_is_given_back_after_a_pause_is_withdrawn(world: World) -> None:
    job = await waiting(world)
    process = await handed_out(world)
    await world.store.jobs.pause(world.caller, job.job_id)
    await world.advance(1)
    process.desks["a"].give_back([run.attempt for run in process.runs])
    await world.advance(1)
    assert (await only_run(world, job)).skip_reason is SkipReason.PAUSED
    assert len(process.runs) == 1


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_the_next_owner_withdraws_what_waits_of_a_paused_job(
    world: World, *, is_stopped: bool
) -> None:
    job = await waiting(world)
    await (world.stop() if is_stopped else world.crash())
    await world.store.jobs.pause(world.caller, job.job_id)
    world.start("b")
    await world.advance(20)
    run = await only_run(world, job)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, SkipReason.PAUSED)
    assert run.attempt == 0


async def test_the_next_owner_keeps_what_was_requested_of_a_paused_job(world: World) -> None:
    job = await waiting(world)
    await world.store.jobs.pause(world.caller, job.job_id)
    await world.advance(1)
    key = RunKey(job.job_id, world.now_us())
    requested = RequestedRun(key=key, trigger=Trigger.MANUAL)
    await world.store.history.request(world.caller, [requested])
    await world.advance(2)
    await world.stop()
    world.start("b")
    await world.advance(20)
    process = Process(world)
    process.lend(5, "b")
    await world.advance(2)
    assert [taken.attempt.key for taken in process.runs] == [key]


async def test_a_pause_leaves_retries(world: World) -> None:
    """As for callbacks: a run that has begun goes on."""
    job = await waiting(world, retry=RetryPolicy(initial_us=SECOND, max_us=SECOND))
    process = await handed_out(world)
    process.desks["a"].forget(process.pool)
    await process.finish(*process.runs, outcome=Failed(error="no paper"))
    await world.advance(5)
    await world.store.jobs.pause(world.caller, job.job_id)
    await world.advance(2)
    assert len((await handed_out(world)).runs) == 1


async def test_a_paused_job_can_be_triggered(world: World) -> None:
    job = await waiting(world)
    await world.store.jobs.pause(world.caller, job.job_id)
    await world.advance(1)
    requested = RequestedRun(key=RunKey(job.job_id, world.now_us()), trigger=Trigger.MANUAL)
    await world.store.history.request(world.caller, [requested])
    await world.advance(2)
    assert len((await handed_out(world)).runs) == 1


async def test_a_worker_that_is_gone_withdraws_what_waits(world: World) -> None:
    job = await world.register(
        "every 10s", queue=WORK, overlap=OverlapPolicy(policy=OnOverlap.ALLOW)
    )
    world.start()
    await world.advance(1)
    process = Process(world)
    process.lend(1)
    await world.advance(10)
    await process.beat(*process.runs)
    await world.advance(20)
    await process.finish(*process.runs, outcome=Gone(error="closed", http_status=None))
    await world.advance(1)
    runs = await world.runs(job)
    assert sorted(run.state for run in runs) == ["dead", *["skipped"] * (len(runs) - 1)]
    assert len(runs) > 1


async def test_a_deletion_withdraws_what_waits(world: World) -> None:
    job = await waiting(world)
    await world.store.jobs.delete(world.caller, job.job_id)
    await world.advance(1)
    assert (await handed_out(world)).runs == []
    assert (await only_run(world, job)).skip_reason is SkipReason.DELETED


async def test_a_cancelled_run_is_withdrawn(world: World) -> None:
    job = await waiting(world)
    await world.store.history.cancel(world.caller, (await only_run(world, job)).key)
    await world.advance(1)
    assert (await handed_out(world)).runs == []
    assert await world.states(job) == [RunState.CANCELLED]


@pytest.mark.parametrize("is_rescheduled", [False, True])
async def test_an_edit_holds_for_what_waits(world: World, *, is_rescheduled: bool) -> None:
    """It was due by the old schedule, and goes as the job is now."""
    job = await waiting(world)
    edited = replace(job, name="renamed", version=2)
    due_us = world.now_us() + 3_600 * SECOND if is_rescheduled else None
    await world.store.jobs.edit(world.caller, edited, due_us, is_rescheduled=is_rescheduled)
    await world.advance(1)
    (run,) = (await handed_out(world)).runs
    assert b'"job_name":"renamed"' in run.content
