"""Looks at runs in doubt whose answer comes late: what they were about has moved on."""

import asyncio
from collections.abc import Collection, Sequence

from msgspec.structs import replace
from tests.unit.shard.world import World

from wheelsched.config import ShardConfig
from wheelsched.core.duration import SECOND
from wheelsched.core.model import RunKey, RunState
from wheelsched.core.outcome import Outcome, Succeeded, TransportFailure, classify
from wheelsched.core.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import Callback, Checked, ClaimedRetry, Lease, Route


async def test_an_attempt_that_is_over_does_not_end_its_run() -> None:
    async with World() as world:
        runs, timers = world.store.runs, world.store.timers
        recheck, arm_retries = runs.recheck, timers.arm_retries
        is_armed = asyncio.Event()

        async def look_late(keys: Collection[RunKey]) -> list[Checked]:
            await is_armed.wait()
            return await recheck(keys)

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
        runs.recheck = look_late  # type: ignore[method-assign] # slow on purpose
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


async def test_a_look_from_before_a_pause_does_not_let_go_of_a_run(world: World) -> None:
    recheck = world.store.runs.recheck

    async def answer_late(keys: Collection[RunKey]) -> list[Checked]:
        found = await recheck(keys)
        await world.clock.sleep(3 * SECOND * 1_000)
        return found

    world.store.runs.recheck = answer_late  # type: ignore[method-assign] # slow on purpose
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
