"""The whole pipeline in virtual time: a change that comes in time applies, armed or not."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.unit.shard.world import World

from wheelsched.config import LeadConfig, ShardConfig
from wheelsched.core.model import HttpTarget, RunKey, RunState, SkipReason
from wheelsched.core.outcome import Failed, Outcome, Succeeded
from wheelsched.core.policies.policy import MisfirePolicy, RetryPolicy
from wheelsched.ports import Callback, Claim, Lease, Route
from wheelsched.values.duration import SECOND


async def test_a_pause_withdraws_an_armed_run(world: World) -> None:
    job = await world.register("+5")
    world.start(config=ShardConfig(lead=LeadConfig(least_us=3 * SECOND)))
    await world.advance(3.9)
    assert await world.states(job) == [RunState.ARMED]
    acknowledged = await world.store.jobs.pause(world.caller, job.job_id)
    assert acknowledged.too_late == ()
    await world.advance(10)
    assert world.times == []
    assert [run.skip_reason for run in await world.runs(job)] == [SkipReason.PAUSED]


async def test_a_change_applies_while_the_claim_has_no_reply(world: World) -> None:
    job = await world.register("+5")
    arm = world.store.timers.arm

    async def arm_slowly(lease: Lease, claims: Sequence[Claim]) -> set[RunKey]:
        lost = await arm(lease, claims)
        await world.clock.sleep(200_000_000)
        return lost

    world.store.timers.arm = arm_slowly  # type: ignore[method-assign] # this once
    world.start(config=ShardConfig(lead=LeadConfig(least_us=3 * SECOND)))
    while not await world.states(job):
        await world.advance(0.01)
    acknowledged = await world.store.jobs.pause(world.caller, job.job_id)
    assert acknowledged.too_late == ()
    await world.advance(5)
    assert world.times == []


async def test_a_pause_applies_without_hints_too(world: World) -> None:
    job = await world.register("+5", misfire=MisfirePolicy())
    world.start()
    await world.advance(3.5)
    world.link.is_deaf = True
    await world.store.jobs.pause(world.caller, job.job_id)
    await world.advance(10)
    assert world.times == []


async def test_an_edit_rebuilds_an_armed_run(world: World) -> None:
    job = await world.register("+5")
    world.start()
    await world.advance(4.2)
    edited = replace(
        job, version=job.version + 1, target=HttpTarget(url="http://elsewhere.example/hook")
    )
    await world.store.jobs.edit(world.caller, edited, None, is_rescheduled=False)
    await world.advance(2)
    (sent,) = world.dispatcher.sent
    assert sent.route.target.name == "http://elsewhere.example/hook"
    assert world.times == [pytest.approx(5, abs=0.001)]


async def test_a_deleted_job_does_not_fire(world: World) -> None:
    job = await world.register("+5")
    world.start()
    await world.advance(3.9)
    await world.store.jobs.delete(world.caller, job.job_id)
    await world.advance(10)
    assert world.times == []


async def test_a_cancelled_run_does_not_fire(world: World) -> None:
    job = await world.register("+5")
    world.start()
    await world.advance(4.5)
    (run,) = await world.runs(job)
    await world.store.history.cancel(world.caller, run.key)
    await world.advance(10)
    assert world.times == []
    assert await world.states(job) == [RunState.CANCELLED]


async def test_a_retry_that_is_read_again_is_not_armed_any_more(world: World) -> None:
    """Otherwise the shard would consider it known forever, whichever shard has it."""
    outcomes: list[Outcome] = [Failed(error="busy", http_status=503), Succeeded(http_status=200)]

    async def answer(_: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        return [outcomes.pop(0)]

    world.handler = answer
    job = await world.register("+5", retry=RetryPolicy(initial_us=9 * SECOND))
    shard = world.start()
    await world.advance(5.1)
    world.link.is_deaf = True
    await world.advance(10)
    assert await world.states(job) == [RunState.SUCCEEDED]
    assert shard.vitals.runs.armed == 0
