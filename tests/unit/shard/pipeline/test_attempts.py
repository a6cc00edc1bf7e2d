"""The whole pipeline in virtual time: runs that do not succeed at once."""

from collections.abc import Sequence

import pytest
from tests.unit.shard.workers import Failing, accepting, gone
from tests.unit.shard.world import World

from wheelsched.core.model import JobState, RunKey, RunState, SkipReason
from wheelsched.core.outcome import Failed, Outcome
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import Callback, Ending, Route, Settled
from wheelsched.ports.work import Attempted, Held
from wheelsched.values.duration import SECOND


async def test_a_failed_run_is_retried_with_the_same_key_and_a_greater_token(
    world: World,
) -> None:
    world.handler = Failing(2)
    job = await world.register("+5", retry=RetryPolicy(initial_us=SECOND))
    world.start()
    await world.advance(20)
    callbacks = [callback for _, callback in world.arrived]
    assert [callback.attempt for callback in callbacks] == [1, 2, 3]
    assert len({callback.idempotency_key for callback in callbacks}) == 1
    tokens = [callback.token for callback in callbacks]
    assert tokens == sorted(set(tokens))
    (run,) = await world.runs(job)
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 3)


async def test_a_run_is_dead_after_its_last_attempt(world: World) -> None:
    world.handler = Failing(99)
    job = await world.register("+5", retry=RetryPolicy(max_attempts=3, initial_us=SECOND))
    world.start()
    await world.advance(60)
    assert len(world.arrived) == 3
    assert await world.states(job) == [RunState.DEAD]


async def test_a_run_whose_job_is_deleted_while_it_is_sent_has_no_further_attempt(
    world: World,
) -> None:
    async def fail_later(_: Route, callbacks: Sequence[Callback]) -> Sequence[Outcome]:
        await world.clock.sleep(2 * 10**9)
        return [Failed(error="not today", http_status=503)] * len(callbacks)

    world.handler = fail_later
    job = await world.register("+5", retry=RetryPolicy(initial_us=SECOND))
    world.start()
    await world.advance(6)
    await world.store.jobs.delete(world.caller, job.job_id)
    await world.advance(10)
    assert len(world.arrived) == 1
    assert await world.states(job) == [RunState.CANCELLED]


async def test_a_worker_that_responds_410_pauses_the_job(world: World) -> None:
    world.handler = gone
    job = await world.register("*/5 * * * * *")
    world.start()
    await world.advance(30)
    assert len(world.arrived) == 1
    assert (await world.store.jobs.get(world.caller, job.job_id)).state is JobState.PAUSED


async def test_armed_runs_are_withdrawn_when_a_worker_responds_410(world: World) -> None:
    world.handler = gone
    job = await world.register("* * * * * *", overlap=OverlapPolicy(policy=OnOverlap.ALLOW))
    world.start()
    await world.advance(30)
    assert len(world.arrived) <= 2  # one that is due within a second of the pause may go out
    skipped = {run.skip_reason for run in await world.runs(job) if run.state is RunState.SKIPPED}
    assert skipped == {SkipReason.PAUSED}


async def test_a_stale_410_does_not_pause_the_job(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overtaken(settled: Sequence[Settled]) -> set[RunKey]:
        return {one.key for one in settled}  # each has a later attempt

    monkeypatch.setattr(world.store.runs, "settle", overtaken)
    world.handler = gone
    job = await world.register("*/5 * * * * *")
    shard = world.start()
    await world.advance(18)
    assert shard.vitals.runs.stale_outcomes == 3
    assert (await world.store.jobs.get(world.caller, job.job_id)).state is JobState.ACTIVE


async def test_a_batch_that_gets_410_pauses_all_of_its_jobs(world: World) -> None:
    world.handler = gone
    anyhow = OverlapPolicy(policy=OnOverlap.ALLOW)
    jobs = await world.register_many(["* * * * * *"] * 5, batch=10, overlap=anyhow)
    world.start()
    await world.advance(30)
    assert len(world.arrived) <= 2 * len(jobs)
    for job in jobs:
        assert (await world.store.jobs.get(world.caller, job.job_id)).state is JobState.PAUSED


async def test_a_worker_keeps_an_accepted_run_while_it_sends_heartbeats(world: World) -> None:
    world.handler = accepting
    job = await world.register("+5", timeout_us=10 * SECOND)
    world.start()
    await world.advance(8)
    (_, callback), *_ = world.arrived
    for _ in range(4):
        await world.advance(4)
        assert await world.store.history.heartbeat(world.caller, callback.key, callback.token)
    assert await world.states(job) == [RunState.RUNNING]
    done = Settled(callback.key, callback.token, Ending(state=RunState.SUCCEEDED))
    assert await world.store.history.answer(world.caller, done)
    await world.advance(60)
    assert len(world.arrived) == 1
    assert await world.states(job) == [RunState.SUCCEEDED]


async def test_a_heartbeat_keeps_a_run_for_the_lease_of_its_worker(world: World) -> None:
    world.handler = accepting
    job = await world.register(
        "+5", timeout_us=10 * SECOND, retry=RetryPolicy(max_attempts=2, initial_us=SECOND)
    )
    world.start()
    await world.advance(12)
    ((_, callback),) = world.arrived
    attempt = Attempted(callback.key, callback.token)
    held = await world.store.history.heartbeats(world.caller, [attempt], [40 * SECOND])
    assert held == [Held(is_held=True)]
    await world.advance(30)
    assert await world.states(job) == [RunState.RUNNING]
    assert len(world.arrived) == 1
    await world.advance(15)
    assert [callback.attempt for _, callback in world.arrived] == [1, 2]


async def test_the_lease_of_an_earlier_attempt_does_not_count(world: World) -> None:
    world.handler = accepting
    job = await world.register(
        "+5", timeout_us=10 * SECOND, retry=RetryPolicy(max_attempts=3, initial_us=SECOND)
    )
    world.start()
    await world.advance(8)
    ((_, callback),) = world.arrived
    attempt = Attempted(callback.key, callback.token)
    await world.store.history.heartbeats(world.caller, [attempt], [600 * SECOND])
    (run,) = await world.runs(job)
    failed = Ending(state=RunState.RETRYING, retry_at_us=run.due_us + 5 * SECOND)
    assert await world.store.history.answer(world.caller, Settled(*attempt, failed))
    await world.advance(5)
    await world.crash("a")
    world.start("b")
    await world.advance(60)
    assert [callback.attempt for _, callback in world.arrived] == [1, 2, 3]


async def test_a_worker_without_heartbeats_has_failed(world: World) -> None:
    world.handler = accepting
    job = await world.register(
        "+5", timeout_us=10 * SECOND, retry=RetryPolicy(max_attempts=2, initial_us=SECOND)
    )
    world.start()
    await world.advance(60)
    assert [callback.attempt for _, callback in world.arrived] == [1, 2]
    (run,) = await world.runs(job)
    assert run.state is RunState.DEAD
    assert run.error is not None
    assert "heartbeats stopped" in run.error
