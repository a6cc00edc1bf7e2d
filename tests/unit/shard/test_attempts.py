"""The whole pipeline in virtual time: what becomes of a run whose worker does not say yes."""

from collections.abc import Sequence

from tests.unit.shard.workers import Failing, accepting, gone
from tests.unit.shard.world import World

from wheelsched.core.duration import SECOND
from wheelsched.core.model import JobState, RunState, SkipReason
from wheelsched.core.outcome import Failed, Outcome
from wheelsched.core.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import Callback, Ending, Route, Settled


async def test_a_failed_run_is_tried_again_with_the_same_key_and_a_greater_token(
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


async def test_attempts_come_to_an_end(world: World) -> None:
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


async def test_a_worker_that_wants_no_more_pauses_the_job(world: World) -> None:
    world.handler = gone
    job = await world.register("*/5 * * * * *")
    world.start()
    await world.advance(30)
    assert len(world.arrived) == 1
    assert (await world.store.jobs.get(world.caller, job.job_id)).state is JobState.PAUSED


async def test_what_is_armed_when_a_worker_wants_no_more_is_withdrawn(world: World) -> None:
    world.handler = gone
    job = await world.register("* * * * * *", overlap=OverlapPolicy(policy=OnOverlap.ALLOW))
    world.start()
    await world.advance(30)
    assert len(world.arrived) <= 2  # one that is due within a second of the pause may go out
    skipped = {run.skip_reason for run in await world.runs(job) if run.state is RunState.SKIPPED}
    assert skipped == {SkipReason.PAUSED}


async def test_a_batch_that_its_worker_does_not_want_pauses_all_of_its_jobs(world: World) -> None:
    world.handler = gone
    anyhow = OverlapPolicy(policy=OnOverlap.ALLOW)
    jobs = await world.register_many(["* * * * * *"] * 5, batch=10, overlap=anyhow)
    world.start()
    await world.advance(30)
    assert len(world.arrived) <= 2 * len(jobs)
    for job in jobs:
        assert (await world.store.jobs.get(world.caller, job.job_id)).state is JobState.PAUSED


async def test_an_accepted_run_is_the_workers_while_it_is_heard_of(world: World) -> None:
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


async def test_a_silent_worker_has_failed(world: World) -> None:
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
    assert "silent" in run.error
