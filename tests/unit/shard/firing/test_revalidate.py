"""Reads of doubtful runs that return late, when the run has moved on."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.unit.shard.world import START_US, World

from wheelsched.config import ShardConfig
from wheelsched.core.model import Job, RunKey, RunState
from wheelsched.core.outcome import Outcome, Succeeded, TransportFailure, classify
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import Callback, Checked, ClaimedRetry, Clock, Lease, Route
from wheelsched.values.duration import SECOND


async def test_a_stale_read_of_an_ended_attempt_does_not_end_its_run() -> None:
    async with World() as world:
        runs, timers = world.store.runs, world.store.timers
        revalidate, arm_retries = runs.revalidate, timers.arm_retries
        is_armed = asyncio.Event()

        async def look_late(keys: Collection[RunKey]) -> list[Checked]:
            await is_armed.wait()
            return await revalidate(keys)

        async def arm_and_tell(lease: Lease, retries: Sequence[ClaimedRetry]) -> list[object]:
            won = await arm_retries(lease, retries)
            is_armed.set()
            return [*won]

        async def fail_slowly(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
            await world.clock.sleep(3_000_000_000)
            if callbacks[0].attempt == 1:
                return [classify(TransportFailure.TIMEOUT, now_us=0)]
            return [Succeeded(http_status=200)]

        world.handler = fail_slowly
        runs.revalidate = look_late  # type: ignore[method-assign] # slow on purpose
        timers.arm_retries = arm_and_tell  # type: ignore[method-assign,assignment] # overheard
        job = await world.register(
            "every 10s",
            overlap=OverlapPolicy(policy=OnOverlap.SKIP),
            retry=RetryPolicy(initial_us=20 * SECOND, max_us=20 * SECOND),
        )
        world.start()
        await world.advance(11)
        world.store._tables.hint(job.job_id)
        while not is_armed.is_set():
            await world.advance(0.1)
        await world.advance(45 - world.now_s)
        first, *others = await world.runs(job)
        assert first.state is RunState.SUCCEEDED
        assert first.finished_at_us is not None
        meanwhile = {run.state for run in others if run.due_us < first.finished_at_us}
        assert meanwhile == {RunState.SKIPPED}
        assert [callback.attempt for _, callback in world.arrived][:2] == [1, 2]


async def test_a_read_from_before_a_pause_does_not_release_a_run(world: World) -> None:
    revalidate = world.store.runs.revalidate

    async def answer_late(keys: Collection[RunKey]) -> list[Checked]:
        found = await revalidate(keys)
        await world.clock.sleep(3 * SECOND * 1_000)
        return found

    world.store.runs.revalidate = answer_late  # type: ignore[method-assign] # slow on purpose
    job = await world.register("+20")
    lead = replace(ShardConfig().lead, least_us=5 * SECOND)
    world.start("a", replace(ShardConfig(), lead=lead))
    await world.advance(17.5)
    world.store._tables.hint(job.job_id)
    await world.advance(1)
    await world.store.jobs.pause(world.caller, job.job_id)
    await world.advance(20)
    assert not world.keys
    assert await world.states(job) == [RunState.SKIPPED]


async def test_a_run_that_is_skipped_while_it_is_rebuilt_stays_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job was edited; the run before it ends before the rebuilt request is ready."""
    read_jobs = world.store.timers.read_jobs

    async def read_slowly(job_ids: Collection[UUID]) -> list[Job]:
        await world.clock.sleep(SECOND * 1_000)
        return await read_jobs(job_ids)

    async def work(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        await world.clock.sleep(10_300_000_000)
        return [Succeeded(http_status=200)]

    world.handler = work
    job = await world.register("every 10s", overlap=OverlapPolicy(policy=OnOverlap.SKIP))
    world.start()
    await world.advance(19.5)
    monkeypatch.setattr(world.store.timers, "read_jobs", read_slowly)
    edited = replace(job, version=2, priority=1)
    await world.store.jobs.edit(world.caller, edited, None, is_rescheduled=False)
    await world.advance(5)
    assert await world.states(job) == [RunState.SUCCEEDED, RunState.SKIPPED]
    assert [key.due_us - START_US for key in world.keys] == [10 * SECOND]


async def test_a_run_that_comes_into_doubt_before_it_is_rebuilt_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cancelled after the look that found it edited, and more than a second ahead."""

    async def yield_slowly(
        clock: Clock, items: Iterable[object], *_: int
    ) -> AsyncIterator[Sequence[object]]:
        for item in tuple(items):
            yield [item]
            await clock.sleep(SECOND * 1_000)

    jobs = await world.register_many(["+20"] * 2)
    world.start()
    await world.advance(18.5)
    monkeypatch.setattr("wheelsched.shard.firing.revalidate.yielding", yield_slowly)
    for job in jobs:
        edited = replace(job, version=2, priority=1)
        await world.store.jobs.edit(world.caller, edited, None, is_rescheduled=False)
    await world.advance(0.2)
    for job in jobs:
        key = RunKey(job.job_id, START_US + 20 * SECOND)
        assert await world.store.history.cancel(world.caller, key)
    await world.advance(20)
    assert not world.arrived
